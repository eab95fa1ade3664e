"""suites: first batches and imports, decoding alone, augmentations, cores, a training step, all suites in a row.

Each file has `add_options(commands)`, which adds its command with `run`, a function of the options and a folder for
temporary files, which returns the exit status.
"""
