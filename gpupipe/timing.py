"""timing: where threads spend their time, step by step, while `Dataset.profile` runs.

A `Tracker` is set in a context (`TRACKER`); threads and pools hand it on to what they run. Where none is set, nothing
is measured. Each thread has a clock that runs for one meter at a time: entering a step stops that of the step around
it. So the time of a step is its own, without its input's.

CPU time is read where a slice of time is long enough to hold a wait; a shorter one is taken to be CPU time, since a
look at that clock costs 0.6 us. What is missing in a slice was waiting: for storage, in a user's function, for another
thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import field
from time import perf_counter, thread_time
from types import TracebackType
from typing import Any, NamedTuple

from .classes import dataclass

__all__ = ["OUTSIDE", "TRACKER", "Clock", "Log", "Meter", "Ranges", "Section", "Span", "Spent", "Tracker", "reading"]

SHORT = 20e-6
"""Seconds below which a slice of time counts as CPU time."""

GAP = 1e-3
"""Seconds between two calls of a step that are drawn as one."""

MOST_SPANS = 100_000
"""Spans that are kept for the picture, about 15 MB; later ones are dropped, and counted."""


@dataclass(frozen=True, slots=True)
class Meter:
    """What time is spent on: a step, or a part of one.

    Attributes:
        step: in words, as `explain()` shows it.
        line: ``file:line`` where the user wrote it, or "".
        kind: "step"; "python" for a user's function; "workers" for one that threads or processes run; "host" for
            traced functions on the host; "storage"; "executor"; "queue" for what waits for another thread; "loop" for
            the user's own work.
    """

    step: str
    line: str = ""
    kind: str = "step"


@dataclass(slots=True, eq=False)
class Spent:
    """The time of one meter on one thread, in seconds.

    Attributes:
        meter: what it was spent on.
        thread: its name.
        carried: whether the thread works for the step of another thread, which waits for it.
        calls: elements that were given.
        entries: how often it was entered.
        nested: how often another meter was entered inside it.
        seconds: without those of nested meters.
        blocked: the part that was no CPU time.
        first: start of the span that is being drawn; 0 if there is none.
        last: its end so far.
    """

    meter: Meter
    thread: str
    carried: bool = False
    calls: int = 0
    entries: int = 0
    nested: int = 0
    seconds: float = 0.0
    blocked: float = 0.0
    first: float = 0.0
    last: float = 0.0


class Span(NamedTuple):
    """A stretch of time in which a thread worked for a step, nested steps included; by `perf_counter`."""

    step: str
    kind: str
    thread: str
    start: float
    end: float


OUTSIDE = Meter("outside", "", "outside")


class Clock:
    """The clock of one thread.

    Attributes:
        thread: its name.
        top: what it runs for now.
        spent: everything it ran for, by meter, and whether the thread worked for another one.
        outside: what it runs for outside of all meters.
        work: the meter that it entered first, which tells what the thread is for.
    """

    def __init__(self, tracker: Tracker, thread: str) -> None:
        self._tracker = tracker
        self.thread = thread
        self.spent: dict[tuple[Meter, bool], Spent] = {}
        self.outside = self.top = Spent(OUTSIDE, thread)
        self.work: Meter | None = None
        self._stack: list[tuple[Spent, float]] = []
        self._since = self._mark = perf_counter()
        self._cpu = thread_time()

    def enter(self, meter: Meter, carried: bool = False) -> None:
        """Run for a meter, until `leave`."""
        now = perf_counter()
        self._charge(now)
        self._stack.append((self.top, now))
        spent = self.spent.get((meter, carried))
        if spent is None:
            spent = self.spent[meter, carried] = Spent(meter, self.thread, carried)
            self.work = self.work or meter
        self.top = spent

    def leave(self, calls: int = 1) -> None:
        """Run for what it ran for before `enter`; `calls` elements were given."""
        now = perf_counter()
        self._charge(now)
        top = self.top
        top.calls += calls
        top.entries += 1
        self.top, entered = self._stack.pop()
        self.top.nested += 1
        if entered - top.last > GAP:
            self.flush(top)
            top.first = entered
        top.last = now

    def _charge(self, now: float) -> None:
        """Add the time since the last switch to the meter that ran."""
        elapsed, self._since = now - self._since, now
        top = self.top
        top.seconds += elapsed
        if elapsed > SHORT:
            cpu = thread_time()
            top.blocked += max(0.0, now - self._mark - (cpu - self._cpu))
            self._mark, self._cpu = now, cpu

    def flush(self, spent: Spent) -> None:
        """Add the span that is being drawn to the picture."""
        if spent.first:
            self._tracker.draw(Span(spent.meter.step, spent.meter.kind, spent.thread, spent.first, spent.last))
            spent.first = 0.0


@dataclass(slots=True)
class Log:
    """The times at which items went through a queue, by `perf_counter`.

    Attributes:
        step: whose queue it is.
        line: the user's line of the step.
        most: items that may wait.
        puts: when the giver came with an item, and when it had room for another.
        gets: when the taker came, and when it left with an item.
        takers: the names of the threads that take.
    """

    step: str
    line: str
    most: int
    puts: list[tuple[float, float]] = field(default_factory=list)
    gets: list[tuple[float, float]] = field(default_factory=list)
    takers: set[str] = field(default_factory=set)

    def taken_by(self, came: float, left: float) -> None:
        """Note that this thread has taken an item."""
        self.gets.append((came, left))
        self.takers.add(threading.current_thread().name)


class Tracker:
    """The time of all threads of one profile.

    Attributes:
        storage: the meter of reads.
        clocks: of all threads so far.
        logs: of all queues so far.
        flights: of each batch in an executor: the stage, when it was submitted, asked for, and there.
        spans: for the picture.
        dropped: spans beyond the most that are kept.
    """

    storage = Meter("storage", "", "storage")

    def __init__(self) -> None:
        self._local = threading.local()
        self.clocks: list[Clock] = []
        self.logs: list[Log] = []
        self.flights: list[tuple[str, float, float, float]] = []
        self.spans: list[Span] = []
        self.dropped = 0

    def here(self) -> Clock:
        """The clock of this thread."""
        clock: Clock | None = getattr(self._local, "clock", None)
        if clock is None:
            clock = self._local.clock = Clock(self, threading.current_thread().name)
            self.clocks.append(clock)
        return clock

    def carried(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A function for another thread, whose time is of the step that this thread is in."""
        meter = self.here().top.meter

        def run(*args: Any) -> Any:
            clock = self.here()
            clock.enter(meter, carried=True)
            try:
                return fn(*args)
            finally:
                clock.leave(0)

        return run

    def draw(self, span: Span) -> None:
        """Keep a span for the picture."""
        if len(self.spans) < MOST_SPANS:
            self.spans.append(span)
        else:
            self.dropped += 1


TRACKER: ContextVar[Tracker | None] = ContextVar("gpupipe_tracker", default=None)
"""The tracker of the profile that this thread works for; None otherwise."""


def reading() -> Clock | None:
    """Start the time of a read: the clock to `leave` after it, or None where nothing is measured."""
    tracker = TRACKER.get()
    if tracker is None:
        return None
    clock = tracker.here()
    clock.enter(tracker.storage)
    return clock


Ranges = tuple[Callable[[str], Any], Callable[[], Any]]
"""Functions that push a range of a name, and pop it."""


class Section:
    """A part of a step that is done for a whole batch, as a context manager; one thread at a time is inside.

    Args:
        meter: what its time is spent on.

    Attributes:
        ranges: shows each batch in NVIDIA's profilers; None without a GPU.
    """

    __slots__ = ("_clock", "_meter", "_pop", "ranges")

    def __init__(self, meter: Meter) -> None:
        self.ranges: Ranges | None = None
        self._meter = meter
        self._clock: Clock | None = None
        self._pop: Callable[[], Any] | None = None

    def __enter__(self) -> None:
        if self.ranges is not None:
            push, self._pop = self.ranges
            push(f"gpupipe {self._meter.step}")
        tracker = TRACKER.get()
        if tracker is not None:
            self._clock = tracker.here()
            self._clock.enter(self._meter)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        clock, self._clock = self._clock, None
        if clock is not None:
            clock.leave(0)
        pop, self._pop = self._pop, None
        if pop is not None:
            pop()
