"""process_map: the step of `map(workers="process")`: Python functions that hold the GIL, in worker processes."""

from __future__ import annotations

from ...classes import dataclass
from ..idle_workers import IdleWorkers
from ..maps.python_map import PythonMapFlow, WorkerPool
from ..run import Context

__all__ = ["ProcessMapFlow"]


@dataclass(frozen=True, slots=True)
class ProcessMapFlow(PythonMapFlow):
    """A Python function of each element, in processes, which import it by its name.

    Attributes:
        home: where the processes wait for the next iterator; None ends them with this one.
    """

    home: IdleWorkers | None = None

    def hire(self, at: Context, calls: int) -> WorkerPool:
        from .pool import Workers  # imports multiprocessing, which other chains do not need

        return Workers.of(self, calls, at)
