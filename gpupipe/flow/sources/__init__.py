"""sources: steps that make elements."""
