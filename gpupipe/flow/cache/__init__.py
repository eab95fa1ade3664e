"""cache: elements that are kept, in memory and in files."""
