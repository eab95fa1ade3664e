"""records: files cut into records."""
