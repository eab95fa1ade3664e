"""maps: steps that take one element at a time: map, filter, scan and their like."""
