"""maps: steps that look at one element after the other."""
