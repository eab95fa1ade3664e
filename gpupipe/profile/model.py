"""model: what a chain's rate would be if some of its work took less time, or if more of it ran at once.

A chain is a set of resources: threads, pools of threads or processes, an executor, the CPUs, the interpreter's lock.
Work on one resource adds up; a pool divides it by its workers; resources that work at the same time run at the rate of
the slowest. Between the threads that work ahead and the loop is a queue, whose effect depends on how the times of
single elements vary: so the measured times of the elements, scaled, are run through a queue of that size.

What a thread is measured to spend is its service time only as far as it is work: CPU time, storage, a user's function
that sleeps or waits for a network. Waiting for another thread, for a CPU or for the interpreter's lock is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from ..classes import dataclass
from ..timing import Log, Meter
from .measure import Measurement, Slice

__all__ = ["Change", "Model", "Part", "Resource"]

BLOCKS = ("python", "storage")
"""Kinds of meters whose waiting is work of the step itself."""


@dataclass(frozen=True, slots=True)
class Part:
    """The work of one step on one resource, in seconds for each step of the loop.

    Attributes:
        step: in words.
        line: the user's line.
        kind: see `Meter`.
        resource: the name of the resource.
        elements: given for each step of the loop.
        seconds: service time.
        cpu: CPU time.
        waiting: time that was neither.
    """

    step: str
    line: str
    kind: str
    resource: str
    elements: float
    seconds: float
    cpu: float
    waiting: float

    @property
    def where(self) -> tuple[str, str]:
        """Step and line, which tell steps apart: two functions may have the same name."""
        return self.step, self.line


@dataclass(frozen=True, slots=True)
class Resource:
    """What does work, one thing at a time for each worker.

    Attributes:
        name: of it.
        workers: threads or processes.
        ahead: whether it works ahead of the loop, not on the loop's thread.
        locked: whether its workers need the interpreter's lock to run Python.
    """

    name: str
    workers: int
    ahead: bool = True
    locked: bool = True


@dataclass(frozen=True, slots=True)
class Change:
    """Something to change in a chain.

    Attributes:
        factors: by step and line, what its work is multiplied by.
        workers: step and line, the workers that its Python function would get, and whether they would be processes.
        loop: what the loop's own work is multiplied by.
        room: elements that may wait before the loop; None leaves it as it is.
    """

    factors: Mapping[tuple[str, str], float] | None = None
    workers: tuple[tuple[str, str], int, bool] | None = None
    loop: float = 1.0
    room: int | None = None


NOTHING = Change()

WAITED = 1e-4
"""Seconds for a batch from which on it was not there yet when it was asked for."""


class Model:
    """The resources of a measured chain.

    Attributes:
        parts: the work.
        resources: by name.
        steps: of the loop, in the window.
        cores: CPUs.
        queue: between the threads that work ahead and the loop; None if there is none.
        loop: the loop's own work, in seconds for each step.
    """

    def __init__(self, measured: Measurement) -> None:
        self._measured = measured
        self.steps, self.cores = len(measured.turns), measured.cores
        self.resources: dict[str, Resource] = {}
        self.parts = [*self._threads(), *self._processes(), *self._executors()]
        self.loop = sum(turn.done - turn.got for turn in measured.turns) / self.steps
        taken = [log for log in _joined(measured.logs) if log.takers == {measured.loop}]
        self.queue: Log | None = taken[0] if len(taken) == 1 and len(taken[0].gets) > 1 < len(taken[0].puts) else None

    # ---- from the measurement

    def _threads(self) -> list[Part]:
        slices = [one for one in self._measured.slices if one.meter.kind not in ("outside", "loop")]
        ahead = {one.meter for one in slices if one.carried}  # steps that other threads work for
        kinds: dict[tuple[str, Meter | None], set[str]] = {}  # the threads that do the same
        for one in slices:
            kinds.setdefault((_pool_of(one), one.work), set()).add(one.thread)
        names = _names(kinds)
        parts: dict[tuple[str, str, str, str], list[float]] = {}
        for one in slices:
            kind = _pool_of(one), one.work
            name = "the loop's thread" if one.looping else names[kind]
            self.resources[name] = Resource(name, len(kinds[kind]), not one.looping)
            cpu, blocked = one.cpu, one.blocked
            if one.meter.kind == "executor" and one.carried:
                continue  # see `_executors`
            works = one.meter.kind in BLOCKS or (one.carried and one.meter.kind == "workers")
            service = cpu + blocked if works and (one.carried or one.meter not in ahead) else cpu
            found = parts.setdefault((one.meter.step, one.meter.line, one.meter.kind, name), [0.0, 0.0, 0.0, 0.0])
            found[:] = [
                found[0] + one.elements,
                found[1] + service,
                found[2] + cpu,
                found[3] + cpu + blocked - service,
            ]
        return [Part(*key, *(number / self.steps for number in numbers)) for key, numbers in parts.items()]

    def _processes(self) -> list[Part]:
        before = {(one.step, one.line): one for one in self._measured.stats[0].steps}
        parts = []
        for one in self._measured.stats[1].steps:
            if not one.processes:
                continue
            was = before.get((one.step, one.line))
            seconds, cpu = one.worked - (was.worked if was else 0), one.cpu_seconds - (was.cpu_seconds if was else 0)
            name = f"processes of {one.step}"
            name += f" at {one.line}" * (name in self.resources)
            self.resources[name] = Resource(name, one.workers, locked=False)
            elements = one.elements - (was.elements if was else 0)
            numbers = (elements, seconds, cpu, seconds - cpu)
            parts.append(Part(one.step, one.line, "workers", name, *(number / self.steps for number in numbers)))
        return parts

    def _executors(self) -> list[Part]:
        """The work of executors: of Python threads, of native ones (CPU time of no Python thread), or of a GPU."""
        slices = self._measured.slices
        meters = list(dict.fromkeys(one.meter for one in slices if one.meter.kind == "executor"))
        native = max(0.0, self._measured.cpu - sum(one.cpu for one in slices))
        parts = []
        for meter in meters:
            flights = [flight for flight in self._measured.flights if flight[0] == meter.step]
            workers = max((one.workers for one in self._measured.stats[1].steps if one.step == meter.step), default=0)
            pool = [one for one in slices if one.meter == meter and one.carried]
            busy = _in_flight(flights)
            if "GPU" in meter.step:
                count, cpu, seconds = 1, 0.0, busy
            elif pool and workers:
                count, cpu = workers, sum(one.cpu for one in pool)
                seconds = cpu
            else:
                total = sum(_in_flight([f for f in self._measured.flights if f[0] == m.step]) for m in meters)
                count, cpu = self._measured.dali_threads, native * busy / total if total else 0.0
                cpu += sum(one.cpu for one in pool)  # of threads that decode on the host what DALI must not
                seconds = cpu
            self.resources[meter.step] = Resource(meter.step, min(count, self.cores), locked=False)
            numbers = (len(flights), seconds, cpu, 0.0)
            parts.append(
                Part(meter.step, meter.line, "executor", meter.step, *(number / self.steps for number in numbers))
            )
        return parts

    # ---- what if

    def seconds(self, change: Change = NOTHING) -> float:
        """Seconds for each step of the loop, after a change."""
        if self.queue is not None:
            return self._behind_queue(self.queue, change)
        turns = self._measured.turns
        waits = [turn.got - turn.asked for turn in turns]
        scale = self._ratio(change, lambda resource: True)
        if not change.room:
            return sum(waits) / len(turns) * scale + self.loop * change.loop
        own = [(turn.done - turn.got) * change.loop for turn in turns]
        most = queued([wait * scale for wait in waits], own, change.room) / len(turns)
        return max(most, *self._bounds(change, lambda resource: True))

    def _behind_queue(self, queue: Log, change: Change) -> float:
        """Seconds for each step of a loop that takes from a queue."""
        scale = self._ratio(change, lambda resource: resource.ahead)
        own, before = self._of_loop(change) + self.loop * change.loop, self._of_loop(NOTHING) + self.loop
        loop = own / before if before else 1.0
        made = [(later[0] - earlier[1]) * scale for earlier, later in pairwise(queue.puts)]
        used = [(later[0] - earlier[1]) * loop for earlier, later in pairwise(queue.gets)]
        count = min(len(made), len(used))
        room = queue.most if change.room is None else change.room
        most = queued(made[:count], used[:count], room) / count * (len(queue.gets) / self.steps)
        return max(most, own, *self._bounds(change, lambda resource: resource.ahead))

    def gain(self, change: Change) -> float:
        """The rate after a change, divided by the present one."""
        after = self.seconds(change)
        return self.seconds() / after if after > 0 else 1.0

    def _ratio(self, change: Change, side: Callable[[Resource], bool]) -> float:
        """What the slowest resource of a side takes after a change, divided by what it takes now."""
        before = max(self._bounds(NOTHING, side), default=0.0)
        return max(self._bounds(change, side), default=0.0) / before if before else 1.0

    def _of_loop(self, change: Change) -> float:
        """Seconds of steps on the loop's own thread."""
        return max(self._bounds(change, lambda resource: not resource.ahead, shared=False), default=0.0)

    def _bounds(self, change: Change, side: Callable[[Resource], bool], shared: bool = True) -> list[float]:
        """Seconds for each step of the loop that each resource of a side takes, then the CPUs and Python's lock."""
        totals: dict[str, float] = {}
        cpu = python = 0.0
        for part in self.parts:
            factor = (change.factors or {}).get(part.where, 1.0)
            resource, calls = self.resources[part.resource], part.kind in ("workers", "python")
            if change.workers is not None and change.workers[0] == part.where and calls:
                _, workers, processes = change.workers
                resource = Resource(f"workers of {part.step} at {part.line}", workers, locked=not processes)
            if side(resource):
                name = resource.name
                totals[name] = totals.get(name, 0.0) + part.seconds * factor / resource.workers
            cpu += part.cpu * factor
            python += part.cpu * factor if resource.locked and calls else 0.0
        if shared:
            totals["CPUs"] = cpu / self.cores
            totals["Python's lock"] = python
        return list(totals.values())


def _pool_of(one: Slice) -> str:
    """The name of a thread without its number in a pool."""
    return re.sub(r"-\d+$", "", one.thread)


def _names(kinds: Mapping[tuple[str, Meter | None], set[str]]) -> dict[tuple[str, Meter | None], str]:
    """A name for each kind of threads: that of the pool, its number if there are several, how many threads it has."""
    seen: dict[str, int] = {}
    names: dict[tuple[str, Meter | None], str] = {}
    for kind, threads in kinds.items():
        seen[kind[0]] = number = seen.get(kind[0], 0) + 1
        several = f", {len(threads)} threads" if len(threads) > 1 else ""
        names[kind] = f"{kind[0]}{f' ({number})' if number > 1 else ''}{several}"
    return names


def _in_flight(flights: Sequence[tuple[str, float, float, float]]) -> float:
    """Seconds that an executor worked on some batches.

    The end of a batch that was there before it was asked for is not known: it counts as the mean of the others.
    """
    waited, end = list[float](), 0.0
    for _, submitted, asked, there in flights:
        if there - asked > WAITED:
            waited.append(max(0.0, there - max(submitted, end)))
        end = there
    return sum(waited) / len(waited) * len(flights) if waited else 0.0


def _joined(logs: Sequence[Log]) -> list[Log]:
    """The queues of a chain: those of several passes over one step are one."""
    found: dict[tuple[str, str, int], Log] = {}
    for log in logs:
        one = found.setdefault((log.step, log.line, log.most), Log(log.step, log.line, log.most))
        one.puts += log.puts
        one.gets += log.gets
        one.takers |= log.takers
    return list(found.values())


def queued(made: Sequence[float], used: Sequence[float], room: int) -> float:
    """Seconds that items take through a queue, each made in `made` and used in `used` seconds.

    An item is made when there is room for it: when the item `room` places before it was taken.
    """
    taken = [0.0] * len(made)
    ready = asked = 0.0
    for i, seconds in enumerate(made):
        start = max(ready, taken[i - room] if i >= room else 0.0)
        ready = start + seconds
        taken[i] = max(asked, ready)
        asked = taken[i] + used[i]
    return asked
