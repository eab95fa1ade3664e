"""lower: turns plan nodes into flows and stages, one file per family of steps."""
