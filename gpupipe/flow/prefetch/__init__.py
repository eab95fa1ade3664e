"""prefetch: elements made ahead of the one who asks."""
