"""benchmarks: the same work in gpupipe, DALI by hand, torch and tf.data, measured in pairs.

    python -m benchmarks chain           the chain of the README
    python -m benchmarks extract         interleave and parse only
    python -m benchmarks shuffle-memory  what a buffer of 10,000 records costs
    python -m benchmarks all             every suite, one after another
    python -m benchmarks bench-gpu       the chain on a GPU, if there is one
    python -m benchmarks gpu-day         the first hour on a machine with a GPU: what works, how exact, how fast

Every run is a process of its own; README.md in this folder explains the figures.
"""
