"""report: reports on a chain: explain, check and memory."""
