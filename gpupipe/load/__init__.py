"""load: iterators over datasets, their states, and `save`."""
