"""serving: the preprocessing of a chain for single images and small batches, outside of training."""
