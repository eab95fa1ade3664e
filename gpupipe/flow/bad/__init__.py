"""bad: elements that could not be read, decoded or computed."""
