"""tied: run a module or a script in a process that ends when its parent does: `python -m benchmarks.tied 123 pytest`.

What a killed benchmark has started would else go on, beside what is measured next. Linux only, as the benchmarks are.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

__all__ = ["command"]

_PR_SET_PDEATHSIG = 1


def command(*words: str) -> list[str]:
    """The command of a process that is tied to this one.

    Args:
        words: a module or the path of a script (``.py``), and its arguments.
    """
    return [sys.executable, "-m", __name__, str(os.getpid()), *words]


def _tie(parent: int) -> None:
    """Have this process killed when its parent ends, however that ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it has ended already
        sys.exit(1)


if __name__ == "__main__":
    _tie(int(sys.argv[1]))
    sys.argv[:] = sys.argv[2:]
    if sys.argv[0].endswith(".py"):
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
