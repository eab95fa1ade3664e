"""order: steps that choose, reorder and repeat elements."""
