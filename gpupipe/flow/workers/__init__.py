"""workers: maps in worker processes."""
