"""cache: elements kept in memory or in files, and the reading of saved datasets."""
