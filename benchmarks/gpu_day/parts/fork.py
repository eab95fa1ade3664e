"""fork: whether a child that was forked while batches are alive ends."""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.inputs import chain, photographs
from benchmarks.gpu_day.plan import Part, Questions

__all__ = ["PART", "questions", "summary"]

PART = Part("fork", "whether a forked child ends", 60, 40)


def questions(day: Day) -> Questions:
    """Return a question for each way to end the child."""
    return {
        "sys.exit": lambda: _child(day, lambda: sys.exit(0)),
        "os._exit": lambda: _child(day, lambda: os._exit(0)),
    }


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return how each child ended."""
    return [f"a child that ends by {name}: {how}" for name, how in answers.items()]


def _child(day: Day, leave: Callable[[], Any]) -> str:
    with chain(day, photographs(day, day.batch * 2)).iterator(0) as items:
        held, dropped = next(items), next(items)
        del dropped
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # about fork with threads, which is the question here
            pid = os.fork()
        if not pid:
            del held
            leave()
        for _ in range(100):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                return "ended" if code == 0 else f"ended with {code}"
            time.sleep(0.1)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return "hung for 10 s"
