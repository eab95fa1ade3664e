"""suites: first batches and imports, decoding alone, cores, a training step, and all suites one after another.

Each file has `add_options(commands)`, which adds its command with `run`, a function of the options and a folder for
temporary files, which returns the exit status.
"""
