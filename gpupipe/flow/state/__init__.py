"""state: the position of a running chain as data, and how steps resume from it."""
