"""sources: steps without an input: arrays, generators, numbers, and the readers of files."""
