"""order: steps that choose, reorder and repeat elements without looking at them."""
