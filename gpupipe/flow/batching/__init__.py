"""batching: elements gathered into batches, windows and groups, and batches taken apart."""
