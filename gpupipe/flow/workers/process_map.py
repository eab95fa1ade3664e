"""process_map: ordinary Python for each element, in worker processes, for functions that hold the GIL."""

from __future__ import annotations

from dataclasses import dataclass

from ..kept import Home
from ..maps.python_map import PythonMapFlow, WorkerPool
from ..run import Context

__all__ = ["ProcessMapFlow"]


@dataclass(frozen=True, slots=True)
class ProcessMapFlow(PythonMapFlow):
    """A Python function of each element, in processes; only its name travels.

    Attributes:
        line: where the user wrote it.
        home: where the processes wait for the next iterator; None ends them with this one.
    """

    line: str = ""
    home: Home | None = None

    def hire(self, at: Context) -> WorkerPool:
        from .pool import Workers  # multiprocessing is imported by the chain that needs it

        return Workers.of(self.function, self.calls, at, self.line, self.home)
