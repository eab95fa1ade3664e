"""bad: what becomes of elements that could not be read, decoded or computed."""
