"""usage: CPU time, memory and the use of a GPU, while something runs."""
