"""plan: a chain as data, one frozen node for each step."""
