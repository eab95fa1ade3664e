"""load: iterators, and handing batches over."""
