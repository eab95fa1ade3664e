"""report: what is said of a chain before and while it runs: explain, check, memory."""
