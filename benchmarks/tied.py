"""tied: run a module or a script in a process that ends when its parent does: `python -m benchmarks.tied 123 pytest`.

Otherwise the processes of a killed benchmark would keep running and disturb the next measurement. Linux only, like the
benchmarks.
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
    """Make the command of a process that ends with this one.

    Args:
        words: a module or the path of a script (``.py``), and its arguments.
    """
    return [sys.executable, "-m", __name__, str(os.getpid()), *words]


def _tie(parent: int) -> None:
    """Have this process killed when its parent ends, for whatever reason."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent has already ended
        sys.exit(1)


if __name__ == "__main__":
    _tie(int(sys.argv[1]))
    sys.argv[:] = sys.argv[2:]
    if sys.argv[0].endswith(".py"):
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
