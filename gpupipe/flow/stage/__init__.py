"""stage: the transform stage: one graph over groups of elements."""
