"""gpu_day: the first hour on a machine with a GPU, as one command: `python -m benchmarks gpu-day`.

A part is a file in `parts/` and asks questions, one after the other, the most important part first. Each part is a
process of its own (`child.py`), in which a question may fail, crash or hang: that is its answer, and the others follow
in a new process (`run.py`). Answers go to a file of JSON lines at once (`ledger.py`), so nothing that was learned is
lost, and a later call with the same file goes on with what is missing (`command.py`). It needs no network and no pip.
"""
