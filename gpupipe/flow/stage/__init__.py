"""stage: the transform stage, which runs one graph over groups of elements."""
