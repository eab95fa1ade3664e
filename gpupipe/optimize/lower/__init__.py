"""lower: a plan into flows, family by family."""
