"""counters: what the steps of a run have done so far, counted in every run: per batch, job or read, never per element.

`iterator.stats()` reads them. Whoever counts owns its numbers: no lock is taken, and a reader may be a moment behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from ..classes import dataclass
from ..threads import Busy

__all__ = ["Counters", "Gauge", "StepCounters"]


@dataclass(slots=True)
class Gauge:
    """How full a queue was so far.

    Attributes:
        most: items that may wait.
        step: whose queue it is, in words.
        line: the user's line of the step.
        taken: items taken.
        fill: items that waited when one was asked for, summed over all times.
        empty: seconds that were waited for an item.
        full: seconds that were waited for room.
    """

    most: int
    step: str = ""
    line: str = ""
    taken: int = 0
    fill: int = 0
    empty: float = 0.0
    full: float = 0.0


@dataclass(slots=True)
class StepCounters:
    """Totals of a step that has threads or processes of its own; times in seconds.

    Attributes:
        elements: that it gave; rows, if it gives batches.
        bytes: of these.
        busy: how long its own thread worked.
        cpu: CPU time of that thread.
        waiting: how long that thread waited for its input.
        blocked: how long it waited until there was room for its results.
        workers: threads or processes that work for it.
        work: the work of each of these.
        processes: whether they are processes; these count their work together.
    """

    elements: int = 0
    bytes: int = 0
    busy: float = 0.0
    cpu: float = 0.0
    waiting: float = 0.0
    blocked: float = 0.0
    workers: int = 0
    work: Sequence[Busy] = ()
    processes: bool = False

    def pool(self, count: int) -> list[Busy]:
        """What `count` threads count their work in, the first of the list; those of the next pass use the same."""
        work = self.work if isinstance(self.work, list) else list(self.work)
        work += [Busy() for _ in range(count - len(work))]
        self.workers, self.work = count, work
        return work


@dataclass(slots=True)
class Counters:
    """The counters of one run, by step and user's line."""

    steps: dict[tuple[str, str], StepCounters] = field(default_factory=dict)
    queues: dict[tuple[str, str], Gauge] = field(default_factory=dict)

    def step(self, name: str, line: str = "") -> StepCounters:
        """The counters of a step."""
        return self.steps.setdefault((name, line), StepCounters())

    def queue(self, most: int, name: str, line: str = "") -> Gauge:
        """The gauge of a step's queue, which holds at most `most` items."""
        return self.queues.setdefault((name, line), Gauge(most, name, line))
