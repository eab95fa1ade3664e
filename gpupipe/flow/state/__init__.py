"""state: where a running chain stands, as data."""
