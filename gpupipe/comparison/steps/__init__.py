"""steps: the pixels of a chain step by step: each op on each executor, from the same images and parameters."""
