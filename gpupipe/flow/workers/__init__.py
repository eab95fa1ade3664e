"""workers: the worker processes of `map(workers="process")`."""
