"""records: the records of files, and indexes of where they start."""
