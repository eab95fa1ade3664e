"""gpu_day: the first hour on a machine with a GPU, as one command: `python -m benchmarks gpu-day`.

A part is a file in `parts/` with questions; the most important part comes first. Each part is a process of its own
(`child.py`), in which a question may fail, crash or hang: that is its answer, and the others are asked in a new process
(`run.py`). Answers go to a file of JSON lines at once (`ledger.py`), so that no result is lost, and a later call with
the same file continues with what is missing (`command.py`). It needs neither network nor pip.
"""
