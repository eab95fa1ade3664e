"""optimize: from a chain as written to stages that run. Rules are pure and read no data."""
