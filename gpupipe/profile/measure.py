"""measure: run some steps of a loop over a chain, with the time of every step on every thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import replace
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np

from ..brief import brief
from ..classes import dataclass
from ..cpus import cpu_count
from ..errors import PlanError
from ..load.iterator import DatasetIterator
from ..load.progress import Epochs
from ..load.stats import IteratorStats
from ..options import Settings
from ..plan.node import Node
from ..timing import OUTSIDE, TRACKER, Clock, Log, Meter, Span, Spent, Tracker

__all__ = ["LOOP", "Measurement", "Slice", "Turn", "consumer_of", "measure"]

LOOP = Meter("the loop", "", "loop")
DELIVERY = Meter("delivery", "", "step")


class Turn(NamedTuple):
    """One step of the loop, by `perf_counter`: when it asked for an element, got it, and was done with it."""

    asked: float
    got: float
    done: float


@dataclass(frozen=True, slots=True)
class Slice:
    """What one thread spent on one meter, within the window.

    Attributes:
        meter: what the time was spent on.
        thread: name of the thread.
        work: the meter that the thread entered first; threads of one name and work do the same, in another pass.
        looping: whether it is the loop's own thread.
        carried: whether the thread worked for a step of another thread, which waited for it.
        elements: given.
        seconds: without nested meters, and without what measuring cost.
        blocked: the part that was no CPU time.
    """

    meter: Meter
    thread: str
    work: Meter | None
    looping: bool
    carried: bool
    elements: int
    seconds: float
    blocked: float

    @property
    def cpu(self) -> float:
        """CPU seconds."""
        return max(0.0, self.seconds - self.blocked)


@dataclass(frozen=True, slots=True)
class Measurement:
    """The window of a profile: some steps of the loop, after those of the warm-up.

    Attributes:
        turns: the steps.
        rows: delivered in them.
        startup: seconds to the first element.
        slices: the time of each meter on each thread.
        cpu: CPU seconds of this process.
        cores: CPUs that it may use.
        dali_threads: threads of DALI on the CPU.
        stats: the counts of the iterator before and after the window.
        logs: queues, with the items that went through them in the window.
        flights: batches that left an executor in the window: stage, submitted, asked for, there.
        spans: for the picture, from the start on.
        dropped: spans that were too many.
        origin: when the first element was asked for.
        own: seconds that measuring itself took, on all threads.
        loop: name of the thread that runs the loop.
    """

    turns: Sequence[Turn]
    rows: int
    startup: float
    slices: Sequence[Slice]
    cpu: float
    cores: int
    dali_threads: int
    stats: tuple[IteratorStats, IteratorStats]
    logs: Sequence[Log]
    flights: Sequence[tuple[str, float, float, float]]
    spans: Sequence[Span]
    dropped: int
    origin: float
    own: float
    loop: str

    @property
    def seconds(self) -> float:
        """Seconds of the window."""
        return self.turns[-1].done - self.turns[0].asked

    @property
    def waiting(self) -> float:
        """Seconds that the loop waited for elements."""
        return sum(turn.got - turn.asked for turn in self.turns)


def measure(
    plan: Node, settings: Settings, epoch: int, steps: int, warmup: int, seconds: float, consumer: Callable[[Any], Any]
) -> Measurement:
    """Run a loop over a chain and measure it.

    Args:
        plan: the chain.
        settings: its options.
        epoch: of its draws.
        steps: elements of the window, fewer if the chain ends.
        warmup: elements before it.
        seconds: after which the window ends.
        consumer: the loop's work on an element.

    Raises:
        PlanError: the chain has no element after the warm-up.
    """
    return copy_context().run(_measured, plan, settings, epoch, steps, warmup, seconds, consumer)


def _measured(
    plan: Node, settings: Settings, epoch: int, steps: int, warmup: int, seconds: float, consumer: Callable[[Any], Any]
) -> Measurement:
    tracker = Tracker()
    cost = cost_of_a_call()
    TRACKER.set(tracker)
    clock, end, turns = tracker.here(), object(), list[Turn]()
    with DatasetIterator(plan, settings, Epochs(range(epoch, epoch + 1))) as items:
        window = _Window(tracker, items, settings.dali_threads)
        for count in range(warmup + steps):
            if count == warmup:
                window.start()
            asked = perf_counter()
            clock.enter(DELIVERY)
            element = next(items, end)
            clock.leave()
            got = perf_counter()
            if element is end:
                break
            clock.enter(LOOP)
            consumer(element)
            clock.leave()
            del element
            turns.append(Turn(asked, got, perf_counter()))
            if count >= warmup and turns[-1].done - turns[warmup].asked > seconds:
                break
        if len(turns) <= warmup:
            raise PlanError(
                f"profile needs more elements than its warm-up of {warmup}, got {len(turns)}; give a smaller warmup=, "
                "or repeat() the dataset"
            )
        return window.measurement(turns, warmup, cost)


class _Window:
    """The state of all clocks at the start of the window."""

    def __init__(self, tracker: Tracker, items: DatasetIterator, dali_threads: int) -> None:
        self._tracker, self._items, self._dali_threads = tracker, items, dali_threads
        self._before: dict[tuple[int, Meter, bool], Spent] = {}
        self._stats = items.stats()
        self._cpu = 0.0

    def start(self) -> None:
        self._before = {key: replace(spent) for key, spent in self._spent()}
        self._stats, self._cpu = self._items.stats(), process_time()

    def _spent(self) -> list[tuple[tuple[int, Meter, bool], Spent]]:
        return [
            ((number, meter, carried), spent)
            for number, clock in enumerate(list(self._tracker.clocks))
            for (meter, carried), spent in [((OUTSIDE, False), clock.outside), *list(clock.spent.items())]
        ]

    def measurement(self, turns: list[Turn], warmup: int, cost: float) -> Measurement:
        cpu, stats, tracker = process_time() - self._cpu, self._items.stats(), self._tracker
        first, last, origin = turns[warmup].asked, turns[-1].done, turns[0].asked
        slices, own = [], 0.0
        for key, spent in self._spent():
            before = self._before.get(key, Spent(spent.meter, spent.thread))
            entries = spent.entries - before.entries
            mine = (entries + spent.nested - before.nested) * cost / 2
            own += entries * cost
            slices.append(
                Slice(
                    spent.meter,
                    spent.thread,
                    tracker.clocks[key[0]].work,
                    key[0] == 0,
                    spent.carried,
                    spent.calls - before.calls,
                    max(0.0, spent.seconds - before.seconds - mine),
                    spent.blocked - before.blocked,
                )
            )
        for clock in list(tracker.clocks):
            for spent in list(clock.spent.values()):
                clock.flush(spent)
        return Measurement(
            turns=tuple(turns[warmup:]),
            rows=stats.rows - self._stats.rows,
            startup=turns[0].got - origin,
            slices=[one for one in slices if one.seconds or one.elements],
            cpu=cpu,
            cores=cpu_count(),
            dali_threads=self._dali_threads,
            stats=(self._stats, stats),
            logs=[_within(log, first, last) for log in tracker.logs],
            flights=[flight for flight in list(tracker.flights) if first <= flight[3] <= last],
            spans=list(tracker.spans),
            dropped=tracker.dropped,
            origin=origin,
            own=own,
            loop=tracker.clocks[0].thread,
        )


def _within(log: Log, first: float, last: float) -> Log:
    """The items that went through a queue in a window."""
    puts = [pair for pair in list(log.puts) if first <= pair[0] <= last]
    gets = [pair for pair in list(log.gets) if first <= pair[0] <= last]
    return replace(log, puts=puts, gets=gets)


def cost_of_a_call() -> float:
    """Seconds that measuring one call of a step takes on this machine."""
    clock, meter, best = Clock(Tracker(), "cost"), Meter("cost"), 1.0
    for _ in range(3):
        started = perf_counter()
        for _ in range(1000):
            clock.enter(meter)
            clock.leave()
        best = min(best, (perf_counter() - started) / 1000)
    return best


def consumer_of(given: Callable[[Any], Any] | float | None) -> Callable[[Any], Any]:
    """The loop's work on an element: what was given, a sleep of that many seconds, or nothing.

    Raises:
        PlanError: it is none of these.
    """
    if given is None:
        return lambda element: None
    if callable(given):
        return given
    if isinstance(given, bool) or not isinstance(given, int | float | np.number) or not 0 <= given < 3600:
        raise PlanError(f"profile needs a consumer that is a function, or seconds from 0 to 3600, got {brief(given)}")
    return lambda element: time.sleep(float(given))
