"""transform: executors, which compute the image values of a graph for a batch: DALI on GPU or CPU, or NumPy."""
