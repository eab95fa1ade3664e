"""stats: what an iterator and its steps have done so far, and what the loop over it waited."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field
from time import perf_counter, process_time

from ..classes import dataclass
from ..flow.run import Run
from ..flow.tuning import Decision
from .table import table

__all__ = ["IteratorStats", "Loop", "QueueStats", "StepStats", "TunedStats", "queue_table", "stats_of"]


@dataclass(slots=True)
class Loop:
    """The clock of an iterator; times in seconds by `perf_counter`.

    Attributes:
        entered: when `next` was called first.
        first: when the first element was delivered; 0 before.
        left: when the last element was delivered.
        waiting: inside `next` since the first element.
        rows: of the batches delivered.
        before: elements that were delivered before a loaded state.
        cpu: CPU time of the process when the first element was delivered.
        closed: the same when the iterator was closed or at its end; 0 before.
        look_at: when the numbers that AUTOTUNE stands for are looked at next.
        look: does that.
    """

    entered: float = 0.0
    first: float = 0.0
    left: float = 0.0
    waiting: float = 0.0
    rows: int = 0
    before: int = 0
    cpu: float = 0.0
    closed: float = 0.0
    look_at: float = math.inf
    look: Callable[[float, int, float], float] | None = None

    def waited(self, asked: float, before: int) -> None:
        """Note an element that was asked for at a time, is there now, and comes after so many others."""
        self.left = now = perf_counter()
        if self.first:
            self.waiting += now - asked
        else:
            self.cpu, self.before, self.entered, self.first = process_time(), before, asked, now
        if now >= self.look_at and self.look is not None:
            self.look_at = self.look(now, before, self.waiting)


@dataclass(frozen=True, slots=True)
class StepStats:
    """A step that has threads or processes of its own.

    Attributes:
        step: in words.
        line: ``file:line`` where the user wrote it; empty for steps that belong to no line.
        elements: that it gave; rows, if it gives batches; 0 where they are not counted.
        bytes: of these.
        seconds: how long its own thread worked.
        waiting: seconds that this thread waited for its input.
        blocked: seconds that it waited until there was room for its results.
        cpu_seconds: CPU time of that thread and of the workers.
        workers: threads or processes that work for it.
        worked: seconds that these worked, in total.
        processes: whether the workers are processes.
    """

    step: str
    line: str = ""
    elements: int = 0
    bytes: int = 0
    seconds: float = 0.0
    waiting: float = 0.0
    blocked: float = 0.0
    cpu_seconds: float = 0.0
    workers: int = 0
    worked: float = 0.0
    processes: bool = False


@dataclass(frozen=True, slots=True)
class QueueStats:
    """The queue of finished elements of a step.

    Attributes:
        step: in words.
        line: as in `StepStats`.
        taken: elements taken out of it.
        most: that may wait.
        fill: how many waited when one was taken, on average.
        empty: seconds that the taker waited for an element.
        full: seconds that the giver waited for room.
    """

    step: str
    line: str
    taken: int
    most: int
    fill: float
    empty: float
    full: float


@dataclass(frozen=True, slots=True)
class TunedStats:
    """A number that AUTOTUNE chooses.

    Attributes:
        step: in words.
        line: as in `StepStats`.
        what: "threads", or "elements" that wait in the queue of a prefetch.
        value: the number now.
        element_bytes: of one element of the step, as measured last; 0 before.
        why: the number is what it is.
    """

    step: str
    line: str
    what: str
    value: int
    element_bytes: int
    why: str


@dataclass(frozen=True, slots=True)
class IteratorStats:
    """What an iterator has done so far.

    Attributes:
        elements: delivered.
        rows: of these, if they are batches; else as many as elements.
        startup: seconds from the first call of `next` to the first element.
        seconds: from the first element to the last one.
        waiting: the seconds of these that the loop waited in `next`; the rest is the loop's own work.
        cpu_seconds: CPU time of this process and its workers since the first element, until the iterator was at its
            end or was closed; the loop's own work included.
        reads: requests to storages.
        read_bytes: that they returned.
        read_seconds: that they took, retries included; those of several threads may overlap.
        steps: steps with threads or processes of their own, inputs first. The time of all others is part of what waits
            for them: of a step above, or of the loop.
        queues: queues of finished elements.
        numbers: that AUTOTUNE chooses. Steps in datasets that are made for each element have none of these.
        decisions: the last 200 changes of them, also of those that brought nothing and were taken back.
        tuned: the numbers by step, for `Options.from_tuned`; may be written as JSON.
    """

    elements: int = 0
    rows: int = 0
    startup: float = 0.0
    seconds: float = 0.0
    waiting: float = 0.0
    cpu_seconds: float = 0.0
    reads: int = 0
    read_bytes: int = 0
    read_seconds: float = 0.0
    steps: tuple[StepStats, ...] = field(default=())
    queues: tuple[QueueStats, ...] = field(default=())
    numbers: tuple[TunedStats, ...] = field(default=())
    decisions: tuple[Decision, ...] = field(default=())
    tuned: dict[str, int] = field(default_factory=dict)

    @property
    def waiting_share(self) -> float:
        """The share of the loop's time, from 0 to 1, that it waited for data."""
        return self.waiting / self.seconds if self.seconds > 0 else 0.0

    @property
    def rows_per_second(self) -> float:
        """Rows delivered in a second after the first element; 0 before the second."""
        return self._later / self.seconds if self.seconds > 0 else 0.0

    @property
    def cpu_ms_per_row(self) -> float:
        """CPU milliseconds for each row after the first element; 0 before the second."""
        return self.cpu_seconds / self._later * 1e3 if self._later else 0.0

    @property
    def _later(self) -> float:
        """Rows after the first element."""
        return self.rows * (self.elements - 1) / self.elements if self.elements else 0.0

    @property
    def summary(self) -> str:
        """Rows per second and the share that the loop waited, for a progress bar."""
        return f"{self.rows_per_second:,.0f} rows/s, waited {self.waiting_share:.0%}"

    def __str__(self) -> str:
        head = ("step", "elements", "busy s", "CPU s", "waiting s", "blocked s", "workers", "line")
        rows = [
            (
                one.step,
                f"{one.elements:,}" if one.elements else "",
                f"{one.seconds + one.worked:.2f}",
                f"{one.cpu_seconds:.2f}",
                f"{one.waiting:.2f}",
                f"{one.blocked:.2f}",
                str(one.workers or ""),
                one.line,
            )
            for one in self.steps
        ]
        lines = [
            f"{self.rows:,} rows in {self.elements:,} elements, {self.rows_per_second:,.0f} rows/s after "
            f"{self.startup:.2f} s; the loop waited {self.waiting_share:.0%} of {self.seconds:.2f} s; "
            f"{self.cpu_ms_per_row:.2f} CPU-ms a row",
            f"{self.reads:,} reads of {self.read_bytes:,} bytes in {self.read_seconds:.2f} s",
            *([table(head, rows, right=range(1, 7))] if self.steps else ()),
            *([queue_table(self.queues)] if self.queues else ()),
            *(f"AUTOTUNE: {one.value} {one.what} for {one.step}, {one.line}; {one.why}" for one in self.numbers),
        ]
        return "\n".join(lines)


def queue_table(queues: Sequence[QueueStats]) -> str:
    """The counts of some queues."""
    rows = [
        (q.step, f"{q.taken:,}", f"{q.fill:.1f} of {q.most}", f"{q.empty:.2f}", f"{q.full:.2f}", q.line) for q in queues
    ]
    return table(("queue", "taken", "fill", "empty s", "full s", "line"), rows, right=range(1, 5))


def stats_of(run: Run | None, loop: Loop, elements: int) -> IteratorStats:
    """The counts of an iterator; `run` is None before it starts."""
    if run is None or not loop.first:
        return IteratorStats()
    reads, elements = run.limits.reads.total(), elements - loop.before
    steps = [
        StepStats(
            step,
            line,
            one.elements or sum(thread.jobs for thread in one.work),
            one.bytes,
            one.busy,
            one.waiting,
            one.blocked,
            one.cpu + sum(thread.cpu for thread in one.work),
            one.workers,
            sum(thread.seconds for thread in one.work),
            one.processes,
        )
        for (step, line), one in list(run.counters.steps.items())
    ]
    queues = [
        QueueStats(step, line, one.taken, one.most, one.fill / one.taken if one.taken else 0.0, one.empty, one.full)
        for (step, line), one in list(run.counters.queues.items())
    ]
    return IteratorStats(
        elements=elements,
        rows=loop.rows or elements,
        startup=loop.first - loop.entered,
        seconds=loop.left - loop.first,
        waiting=loop.waiting,
        cpu_seconds=(loop.closed or process_time()) - loop.cpu + sum(one.cpu_seconds for one in steps if one.processes),
        reads=reads.requests,
        read_bytes=reads.bytes,
        read_seconds=reads.seconds,
        steps=tuple(steps),
        queues=tuple(queues),
        numbers=tuple(
            TunedStats(
                one.step, one.line, "elements" if one.workers is None else "threads", one.value, one.size, one.why
            )
            for one in list(run.tuner.numbers.values())
        ),
        decisions=tuple(run.tuner.decisions),
        tuned=run.tuner.names(),
    )
