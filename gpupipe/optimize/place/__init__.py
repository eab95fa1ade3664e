"""place: what of a graph runs on the host, and what in a transform stage."""
