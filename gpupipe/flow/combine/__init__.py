"""combine: steps that have several inputs, or datasets of elements."""
