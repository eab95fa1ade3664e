"""transform: a graph on a batch.

A `Program` (image values of a graph) and the host values that it reads enter; one result per output and row leaves.
Three executors share one contract: DALI on the GPU, the same DALI graph on the CPU, and NumPy.
"""
