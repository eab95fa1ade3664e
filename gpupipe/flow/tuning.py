"""tuning: the numbers that AUTOTUNE stands for, chosen while a chain runs: worker threads, and elements made ahead.

A step registers its number once a pass and reads `Tuned.value` whenever it decides how much to do; only time and memory
depend on it. The iterator calls `Tuner.look` on the user's thread, about twice a second. One change is tried at a time:
the rate of elements after it, once what was on its way has passed, is compared with the rate right before. A change
that brings nothing is taken back, and tried again only after a pause, which doubles each time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import field
from time import process_time
from typing import Any, NamedTuple
from weakref import WeakSet

from ..classes import dataclass
from ..cpus import cpu_count
from ..log import logger
from ..options import Settings
from ..tuned import MOST_AHEAD, MOST_TUNED, name_of_step
from .counters import Gauge, StepCounters

__all__ = ["MOST_THREADS", "Decision", "Tuned", "Tuner", "most_threads"]

WINDOW = 0.5
"""Seconds over which a rate is measured, or as long as `ENOUGH` elements take, at most `LONGEST`."""

ENOUGH = 5
LONGEST = 5.0
SETTLE = 0.25
"""Seconds after a change that are not measured."""

GAIN, LOSS = 0.05, 0.02
"""The share by which the rate must rise if a number grows, and may fall if it shrinks."""

IDLE = 0.02
"""Where the loop waits less than this share of its time, nothing is changed."""

PAUSE, LONGEST_PAUSE = 4.0, 64.0
"""Seconds before a change that brought nothing is tried again; at first, and at most."""

BUSY = 0.5
"""The share of their time that the threads of a step work if more of them may help."""

FULL = 0.9
"""The share of all CPUs that this process uses if more threads cannot help."""

NEARLY, COMPUTES = 0.8, 0.7
"""The shares of all CPUs that this process and a step use if more threads cannot help that step, which has one for each
CPU: what seems to be free then is often another process's."""

FEW = 0.3
"""CPUs that a step uses if fewer threads of it may help while all CPUs are used, or half an equal share of those."""

MOST_THREADS = 1 << 16
"""Where nothing but `Options` limits the threads of a step."""

KEPT = 200
"""Decisions that are kept, the last ones."""


class Decision(NamedTuple):
    """A change of a number.

    Attributes:
        seconds: since the first element.
        step: in words.
        line: ``file:line`` where the user wrote it.
        before: the number before.
        after: the number that was tried.
        kept: whether it stayed.
        reason: in words.
    """

    seconds: float
    step: str
    line: str
    before: int
    after: int
    kept: bool
    reason: str


@dataclass(slots=True, eq=False)
class Tuned:
    """A number that may change while a chain runs.

    Attributes:
        step: in words.
        line: the user's line.
        value: the number now; read by the step.
        most: its largest value.
        held: elements of the step that wait or are in work, for each one of it.
        workers: the step's counters, if it is a number of threads.
        queue: the step's queue, if it is a number of elements.
        size: bytes of one element, as weighed last; 0 before.
        weigh: whether the step shall call `Tuner.weighed` with its next element.
        why: the number is what it is.
        users: the running steps that read it now.
    """

    step: str
    line: str
    value: int
    most: int
    held: int
    workers: StepCounters | None = None
    queue: Gauge | None = None
    size: int = 0
    weigh: bool = True
    why: str = "the start"
    users: WeakSet[Any] = field(default_factory=WeakSet)

    def set(self, value: int) -> None:
        """Change the number."""
        self.value = value
        if self.queue is not None:
            self.queue.most = value

    @property
    def times(self) -> int:
        """How many steps use it now; one that is between two passes counts."""
        return max(1, len(self.users))

    @property
    def bytes(self) -> int:
        """What its elements may hold in memory."""
        return self.value * self.held * self.size * self.times


class _Counts(NamedTuple):
    """The totals of a step: seconds its threads worked, and their CPU time; or of waits of a queue."""

    first: float
    second: float


class _Point(NamedTuple):
    """The totals at a time."""

    at: float
    delivered: int
    waiting: float
    cpu: float
    steps: dict[Tuned, _Counts]


class _Load(NamedTuple):
    """What happened between two points.

    Attributes:
        rate: elements per second.
        waiting: the share of the time that the loop waited.
        cpu: CPUs that the process used.
        seconds: between the points.
        steps: the counts of each step in a second.
    """

    rate: float
    waiting: float
    cpu: float
    seconds: float
    steps: dict[Tuned, _Counts]


class _Change(NamedTuple):
    """New numbers, and why; the first one is what is wanted, the others make room for it."""

    numbers: tuple[tuple[Tuned, int], ...]
    reason: str


class _Trial(NamedTuple):
    change: _Change
    before: tuple[tuple[Tuned, int], ...]
    rate: float

    @property
    def key(self) -> tuple[Tuned, bool]:
        """The number, and whether it grows."""
        one, was = self.before[0]
        return one, self.change.numbers[0][1] > was


class Tuner:
    """Chooses the numbers of one iterator.

    Args:
        settings: of its chain.

    Attributes:
        numbers: those that were registered, by step and line.
        decisions: the last changes.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.numbers: dict[tuple[str, str], Tuned] = {}
        self.decisions: deque[Decision] = deque(maxlen=KEPT)
        self._cpus = cpu_count()
        self._first = 0.0
        self._point: _Point | None = None
        self._settling = False
        self._trial: _Trial | None = None
        self._resting: dict[tuple[Tuned, bool], tuple[float, float]] = {}
        self._told = False

    def threads(self, user: Any, where: Any, start: int, most: int, held: int, workers: StepCounters) -> Tuned:
        """The number of threads of a step.

        Args:
            user: the running step.
            where: the step, in words and with its line.
            start: the number before anything is known.
            most: that make sense.
            held: see `Tuned`.
            workers: the step's counters.
        """
        most = min(most, most_threads(self._settings))
        made = Tuned(where.step, where.line, start, most, held, workers=workers)
        return self._registered(user, made)

    def ahead(self, user: Any, where: Any, start: int, queue: Gauge) -> Tuned:
        """The number of elements of a step's queue."""
        return self._registered(user, Tuned(where.step, where.line, start, MOST_AHEAD, 1, queue=queue))

    def _registered(self, user: Any, made: Tuned) -> Tuned:
        one = self.numbers.setdefault((made.step, made.line), made)
        one.users.add(user)
        one.most = made.most
        one.set(min(one.value, one.most))
        self._share_threads()
        return one

    def _share_threads(self) -> None:
        """Lower numbers of threads that are more than all steps together may have."""
        pools = [each for each in list(self.numbers.values()) if each.workers is not None]
        limit = self._settings.tuned_threads
        if not limit or sum(each.value * each.times for each in pools) <= limit:
            return
        share = max(1, limit // sum(each.times for each in pools))
        for each in pools:
            if each.value > share:
                each.set(share)
                each.why = f"threads={limit}, shared by all such steps"

    def weighed(self, one: Tuned, size: int) -> None:
        """Note the bytes of an element of a step, and lower numbers whose elements may hold more than is allowed."""
        one.weigh, one.size = False, max(size, one.size * 7 // 8)
        self._bound_memory()

    def _bound_memory(self) -> None:
        """Lower numbers whose elements may hold more than is allowed."""
        most = self._settings.host_memory
        while (total := sum(each.bytes for each in list(self.numbers.values()))) > most:
            large = max(list(self.numbers.values()), key=lambda each: each.bytes if each.value > 1 else -1)
            if large.value == 1:
                return
            after = max(1, min(large.value - 1, large.value - -((most - total) * large.value // large.bytes)))
            self._trial = None
            self._decide(large, large.value, after, True, f"host_memory: {total:,} bytes, {most:,} allowed")
            large.set(after)

    def _decide(self, one: Tuned, before: int, after: int, kept: bool, reason: str) -> None:
        seconds = self._point.at - self._first if self._point is not None else 0.0
        self.decisions.append(Decision(seconds, one.step, one.line, before, after, kept, reason))
        if kept:
            one.why = reason

    def look(self, now: float, delivered: int, waiting: float) -> float:
        """Judge the last change, and perhaps try another; return when to call again.

        Args:
            now: by `perf_counter`.
            delivered: elements so far.
            waiting: seconds so far that the loop waited for them.
        """
        if not self._settings.autotune:
            self._first = now
            return math.inf
        last = self._point
        if last is not None and self.numbers:
            long, count = now - last.at, delivered - last.delivered
            if count < (2 if self._settling else ENOUGH) and long < LONGEST:
                return now + WINDOW / 10
        if last is not None and self.numbers and not self._settling:
            self._judge(self._between(last, now, delivered, waiting))
        else:
            self._settling = False
            self._first = self._first or now
        steps = {one: _totals(one) for one in list(self.numbers.values())}
        self._point = _Point(now, delivered, waiting, process_time(), steps)
        for one in steps:
            one.weigh = True
        return now + (SETTLE if self._settling else WINDOW)

    def _between(self, last: _Point, now: float, delivered: int, waiting: float) -> _Load:
        seconds = max(now - last.at, 1e-9)
        steps = {}
        for one in list(self.numbers.values()):
            after, before = _totals(one), last.steps.get(one, _Counts(0.0, 0.0))
            steps[one] = _Counts(*((b - a) / seconds for a, b in zip(before, after, strict=True)))
        rate, idle = (delivered - last.delivered) / seconds, (waiting - last.waiting) / seconds
        return _Load(rate, idle, (process_time() - last.cpu) / seconds, seconds, steps)

    def _judge(self, load: _Load) -> None:
        """Keep the last change or take it back; then try the next one, unless numbers have just changed."""
        trial, self._trial = self._trial, None
        if trial is not None:
            gain = load.rate / trial.rate - 1
            keep = gain >= (GAIN if trial.key[1] else -LOSS)
            reason = f"{trial.change.reason}: {gain:+.0%} elements a second"
            for (one, was), (_, after) in zip(trial.before, trial.change.numbers, strict=True):
                self._decide(one, was, after, keep, reason)
                one.set(one.value if keep else was)
            if not keep:
                self._share_threads()  # a step that came during the trial may use what it had freed
                self._bound_memory()
                self._rest(trial.key, load)
                self._settling = True
                return
            self._rest((trial.key[0], not trial.key[1]), load)
        if load.waiting < IDLE or not load.rate:
            return
        change = next(self._changes(load), None)
        if change is None:
            return
        self._trial = _Trial(change, tuple((one, one.value) for one, _ in change.numbers), load.rate)
        for one, number in change.numbers:
            one.set(number)
        self._settling = True

    def _rest(self, key: tuple[Tuned, bool], load: _Load) -> None:
        """Do not try a change again for a while."""
        _, pause = self._resting.get(key, (0.0, PAUSE / 2))
        pause = min(2 * pause, LONGEST_PAUSE)
        assert self._point is not None
        self._resting[key] = self._point.at + load.seconds + pause, pause

    def _may(self, one: Tuned, up: bool) -> bool:
        assert self._point is not None
        return self._resting.get((one, up), (0.0, 0.0))[0] <= self._point.at

    def _changes(self, load: _Load) -> Iterator[_Change]:
        """The changes that may help, the most promising first."""
        full, nearly = load.cpu >= FULL * self._cpus, load.cpu >= NEARLY * self._cpus
        work = {one: load.steps[one].first / (one.value * one.times) for one in load.steps if one.workers is not None}
        for one in sorted(work, key=lambda one: -work[one]):
            cores = load.steps[one].second
            computes = nearly and cores >= COMPUTES * self._cpus and one.value * one.times >= self._cpus
            crowded = one.value > self._cpus and cores >= (min(FEW, load.cpu / len(work) / 2) if full else 0.7)
            if crowded and self._may(one, up=False):
                fewer = max(self._cpus, one.value // 2)
                yield _Change(((one, fewer),), f"its threads use {cores:.1f} CPUs, fewer may do")
            if work[one] >= BUSY and not (full or computes) and self._may(one, up=True):
                reason = f"its {one.value} threads work {min(1.0, work[one]):.0%} of the time"
                yield from self._more(one, 2 * one.value, reason, work)
        for one in load.steps:
            if one.queue is not None and min(load.steps[one]) > IDLE and self._may(one, up=True):
                reason = "its queue is at times empty, at times full"
                yield from self._more(one, 2 * one.value, reason, {})

    def _more(self, one: Tuned, wanted: int, reason: str, work: dict[Tuned, float]) -> Iterator[_Change]:
        """Raise a number as far as it may; where threads are limited, some may come from a step whose own are idle."""
        most, others = self._settings, [each for each in list(self.numbers.values()) if each is not one]
        limit, lowered = min(wanted, one.most), tuple[tuple[Tuned, int], ...]()
        if limit <= one.value:
            own = one.workers is not None and one.most == most.tuned_threads
            one.why = f"threads={one.most}" if own else f"{one.value} is the most that it may use"
        if one.workers is not None and most.tuned_threads:
            free = most.tuned_threads - sum(each.value * each.times for each in others if each.workers is not None)
            if free // one.times <= one.value < limit:
                one.why = f"threads={most.tuned_threads}"
                idle = {each: int(each.value * (1 - work[each])) for each in work if each is not one}
                giver = max(idle, key=lambda each: idle[each], default=one)
                if idle.get(giver, 0) > 0:
                    given = min(idle[giver], giver.value - 1, -(-(limit * one.times - free) // giver.times))
                    lowered = ((giver, giver.value - given),) if given > 0 else ()
                    free += given * giver.times
            limit = min(limit, free // one.times)
        if one.size:
            room = (most.host_memory - sum(each.bytes for each in others)) // (one.size * one.held * one.times)
            if room <= one.value < limit:
                one.why = f"host_memory: {one.bytes:,} bytes, {most.host_memory:,} allowed"
            limit = min(limit, room)
        if limit > one.value:
            yield _Change(((one, limit), *lowered), reason)

    def names(self) -> dict[str, int]:
        """The numbers by name; those of steps with the same text are told apart by their lines."""
        texts = [one.step for one in list(self.numbers.values())]
        return {
            one.step if texts.count(one.step) == 1 else name_of_step(one.step, one.line): one.value
            for one in list(self.numbers.values())
        }

    def tell_unknown(self) -> None:
        """Log the names in `Options.tuned` that no step has, once; if no step was run, nothing is known of them."""
        known = {name for one in list(self.numbers.values()) for name in (one.step, name_of_step(one.step, one.line))}
        unknown = [name for name, _ in self._settings.tuned if name not in known]
        if unknown and self._first and not self._told:
            self._told = True
            logger.warning(
                "Options.tuned names %s, but the steps with AUTOTUNE are: %s", unknown, sorted(self.names()) or "none"
            )


def most_threads(settings: Settings) -> int:
    """The most threads of a single step."""
    return settings.tuned_threads or max(MOST_TUNED, cpu_count())


def _totals(one: Tuned) -> _Counts:
    if one.queue is not None:
        return _Counts(one.queue.empty, one.queue.full)
    work = [] if one.workers is None else list(one.workers.work)
    return _Counts(sum(busy.seconds for busy in work), sum(busy.cpu for busy in work))
