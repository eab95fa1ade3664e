"""graph: a user's function as data."""
