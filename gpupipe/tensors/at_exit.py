"""at_exit: lets a program end while TensorFlow's threads read a dataset."""

from __future__ import annotations

import atexit
import sys
import threading
import time
from types import FrameType

from ..load.shutdown import close_all

__all__ = ["wait_for_readers"]

QUIET = 5
"""How many times in a row no thread of TensorFlow may be seen in Python."""

PAUSE = 0.01
"""Seconds from one look at the threads to the next: the thread that reads ahead asks again within less."""

MOST = 500
"""Looks at the threads, so that one that hangs in a function of the chain holds up the end for 5 s at most."""


def wait_for_readers() -> None:
    """At exit, end all iterators and wait until no thread of TensorFlow runs Python code.

    When the interpreter ends, it ends each thread that asks for its lock. A thread of tf.data that reads ahead at that
    moment never answers, and TensorFlow waits for the answer when it frees the iterator: the program would not end.
    """
    close_all()
    quiet = 0
    for _ in range(MOST):
        quiet = 0 if any(map(_of_tensorflow, sys._current_frames().items())) else quiet + 1
        if quiet == QUIET:
            return
        time.sleep(PAUSE)


def _of_tensorflow(found: tuple[int, FrameType]) -> bool:
    """Whether a thread runs a Python function for TensorFlow."""
    ident, frame = found
    while frame.f_back is not None:
        frame = frame.f_back
    return ident != threading.main_thread().ident and frame.f_code.co_filename.endswith("script_ops.py")


atexit.register(wait_for_readers)
