"""flow: the steps of a chain that run on host threads, element by element."""
