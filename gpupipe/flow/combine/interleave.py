"""interleave: the elements of several datasets in turn, in tf.data's exact order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter, sleep
from typing import Any, NamedTuple

import numpy as np

from ...graph.op import Array
from ...plan.index import ENDLESS
from ...threads import DaemonPool
from ..access import Joined, RandomAccess
from ..element import Element, Raised
from ..run import Context, Flow
from ..stall import SOMEWHERE, Watch, Where
from ..state.checkpoints import CheckpointedInput
from ..state.snapshot import State, fast_forward, int_part, part
from ..step import Running, close
from .inner import Inner, inner_accesses, open_inner
from .read_ahead import ReadAhead

__all__ = ["InterleaveFlow", "InterleaveOrder"]

_LOOKING = 0.01
"""Seconds in which outer elements are taken ahead, before an element is given."""


@dataclass(frozen=True, slots=True)
class InterleaveFlow:
    """`cycle` inner datasets in turn, `block` elements of each; an exhausted slot is refilled when its turn comes.

    Attributes:
        deterministic: False takes the next dataset that has an element ready, and waits only if none has.
        threads: that work on datasets which call Python, as many of which are opened before their turn comes; 0: none.
    """

    source: Flow
    inner: Inner
    cycle: int
    block: int
    deterministic: bool = True
    where: Where = SOMEWHERE
    threads: int = 0

    def open(self, at: Context, state: State = None) -> Running:
        return Interleaved(self, at, state)

    def access(self, at: Context) -> RandomAccess:
        parts = inner_accesses(self.source, self.inner, at)
        sizes = [min(part.size, ENDLESS >> 20) for part in parts]
        turns = InterleaveOrder(sizes, self.cycle, self.block)
        return Joined(ENDLESS if any(part.size == ENDLESS for part in parts) else turns.size, turns, parts.__getitem__)


class Interleaved(Running):
    """The running interleave (the algorithm of tf.data, checked against it in 100 configurations)."""

    def __init__(self, flow: InterleaveFlow, at: Context, state: State = None) -> None:
        self._flow = flow
        self._context = at
        self._input = CheckpointedInput(flow.source, at, part(state))
        self._outer = self._input.items
        self._slots: list[Running | None] = [None] * flow.cycle
        self._items: list[Any] = [None] * flow.cycle  # what to take from: `iter` of the slot
        self._numbers: list[int] = [0] * flow.cycle  # of the outer elements that the slots belong to
        self._at = 0
        self._run = 0
        self._more = True
        self._open = 0
        self._watch = Watch(flow.where)
        self._overtakes = not flow.deterministic
        self._coming: deque[_Coming] = deque()  # outer elements whose turn has not come
        self._handed = self._input.count  # outer elements that came before these
        self._pool: DaemonPool | None = None
        if state is not None:
            self._resume(state)

    def _resume(self, state: State) -> None:
        """Open what was open. Its outer elements are taken once more."""
        self._at, self._run = int_part(state, "at") % self._flow.cycle, int_part(state, "run")
        self._more = bool(state["more"])
        slots = [(i, slot) for i, slot in enumerate(state["slots"]) if slot is not None]
        for (i, slot), (outer, place) in zip(slots, self._input.recovered, strict=False):  # fewer if it was stopped
            self._put(i, place, self._opened(outer, slot))

    def _opened(self, outer: Element, state: State = None) -> Running:
        """The dataset of an outer element; read ahead where that is worth it."""
        flow, at = self._flow, self._context
        inside, skip = part(state, "input"), 0 if state is None else int_part(state, "skip")
        if flow.threads and self._pool is not None and getattr(flow.inner.open, "looks", False):
            # To open it may take as long as its first element.
            return self._made_ahead(_Once(lambda: open_inner(flow.inner, at, outer, inside)), state)
        slot = open_inner(flow.inner, at, outer, inside)
        if flow.threads and getattr(flow.inner.open, "python", False):
            return self._made_ahead(_Once(lambda: slot), state, slot)
        fast_forward(slot, skip, at)
        return slot

    def _made_ahead(self, dataset: _Once, state: State, opened: Running | None = None) -> ReadAhead:
        flow, at = self._flow, self._context
        if self._pool is None:
            self._pool = DaemonPool(flow.threads, "gpupipe-interleave")
            at.run.on_close(self._end)
            at.run.track_buffer(self, "interleave")
        slot = ReadAhead(dataset, at, self._pool, flow.block + 1, state, opened)
        slot.start()
        return slot

    def _put(self, i: int, place: int, slot: Running) -> None:
        self._slots[i] = slot
        self._items[i] = iter(slot)
        self._numbers[i] = place
        self._open += 1

    def snapshot(self) -> State:
        """The places of the outer elements that are open, where their datasets stand, and whose turn it is."""
        places = [place for slot, place in zip(self._slots, self._numbers, strict=True) if slot is not None]
        return {
            "source": self._input.holding(places, taken=self._handed),
            "slots": [None if slot is None else standing(slot) for slot in self._slots],
            "at": self._at,
            "run": self._run,
            "more": self._more,
        }

    def _oldest(self) -> int:
        """The first outer element that is still open."""
        places = [place for slot, place in zip(self._slots, self._numbers, strict=True) if slot is not None]
        return min(places, default=self._handed)

    def __next__(self) -> Element:
        flow = self._flow
        cycle = flow.cycle
        empty = 0
        while self._more or self._open:
            if self._overtakes:
                self._to_a_ready_one()
            at = self._at
            items = self._items[at]
            if items is not None:
                element: Element | None = next(items, None)
                if element is not None:
                    if type(element[0]) is Raised:
                        return element  # no element any more: it takes no turn
                    self._run += 1
                    if self._run == flow.block:
                        self._run = 0
                        self._at = (at + 1) % cycle
                    return element
                close(self._slots[at])
                self._slots[at] = self._items[at] = None
                self._open -= 1
                self._advance(cycle)
                empty += 1
                self._watch.nothing(empty)
                if self._context.run.stopped.is_set():
                    break
            elif self._more:
                if self._input.due():
                    self._input.checkpoint(self._oldest())
                if not self._coming or (self._pool is not None and len(self._coming) <= flow.threads):
                    self._look_ahead()
                if not self._coming:
                    self._more = False
                    continue
                place, outer, slot = self._coming.popleft()
                self._handed = place + 1
                if slot is None:
                    return outer
                self._put(at, place, slot)
            else:
                self._advance(cycle)
        self._end()
        raise StopIteration

    def _look_ahead(self) -> None:
        """Open the dataset of the next outer element; where threads work on them, of as many as keep them busy.

        Outer elements that take long are not waited for.
        """
        until = perf_counter() + _LOOKING
        while True:
            outer = next(self._outer, None)
            if outer is None:
                return
            slot = None
            if type(outer[0]) is not Raised:
                slot = self._opened(outer)
            self._coming.append(_Coming(self._input.count - 1, outer, slot))
            if self._pool is None or len(self._coming) > self._flow.threads or perf_counter() > until:
                return

    def _advance(self, cycle: int) -> None:
        self._run = 0
        self._at = (self._at + 1) % cycle

    def _to_a_ready_one(self) -> None:
        """Go to the first slot, from here on, that needs no waiting. Where none is ready, stay, or wait for any."""
        cycle = self._flow.cycle
        while True:
            for step in range(cycle):
                at = (self._at + step) % cycle
                slot = self._slots[at]
                if (slot is None and self._more) or (slot is not None and slot.ready()):
                    if step:
                        self._at, self._run = at, 0
                    return
            # Only what makes elements without being asked is worth waiting for: the one that is ready first.
            if not all(slot is None or slot.runs_ahead for slot in self._slots):
                return
            sleep(0.001)
            if self._context.run.stopped.is_set():
                return

    def close(self) -> None:
        """Close every open dataset, and end the threads."""
        self._end()
        for slot in (*self._slots, *(one.slot for one in self._coming)):
            close(slot)
        self._coming.clear()
        self._slots = [None] * self._flow.cycle
        self._items = [None] * self._flow.cycle
        self._open = 0
        self._more = False
        close(self._input.inner)

    def buffer_usage(self) -> tuple[int, int]:
        """Elements that were made ahead, and their bytes."""
        slots = [*self._slots, *(one.slot for one in list(self._coming))]
        sizes = [slot.buffer_usage() for slot in slots if isinstance(slot, ReadAhead)]
        return sum(count for count, _ in sizes), sum(size for _, size in sizes)

    def _end(self, wait: bool = True) -> None:
        """End the threads; those that wait for them go on."""
        pool = self._pool
        if pool is None:
            return
        for slot in (*self._slots, *(one.slot for one in self._coming)):
            if isinstance(slot, ReadAhead):
                slot.close()
        pool.close(wait)
        self._pool = None
        self._context.run.forget(self._end)


@dataclass(frozen=True, slots=True)
class _Once:
    """The dataset of one outer element, where its state says."""

    opened: Callable[[], Running]

    def open(self, at: Context, state: State = None) -> Running:
        return self.opened()


class _Coming(NamedTuple):
    """An outer element, its number, and its dataset; None where it is an error on its way."""

    place: int
    outer: Element
    slot: Running | None


def standing(slot: Running) -> State:
    """Where a slot stands: the state of its dataset, and how many elements were given behind that."""
    return slot.state() if isinstance(slot, ReadAhead) else {"at": 0, "input": slot.snapshot(), "skip": 0}


class InterleaveOrder:
    """The order of `interleave` without running it: which dataset is at a place, and which of its elements.

    The places fall into stretches in which the same datasets take turns: at most a few for each dataset.

    Args:
        sizes: of the datasets.
        cycle: datasets that are open at a time.
        block: elements taken from each in turn.
    """

    def __init__(self, sizes: Sequence[int], cycle: int, block: int) -> None:
        self._starts: list[int] = []
        self._widths: list[int] = []  # elements of one turn
        self._firsts: list[int] = []  # where the datasets of a stretch stand in `_who`
        self._who: list[int] = []
        self._from: list[int] = []
        self._blocks: list[int] = []  # elements that a dataset gives in one turn
        self.size = 0
        self._run(sizes, cycle, block)
        self._tables = [np.array(x, np.int64) for x in (self._starts, self._widths, self._firsts)]
        self._columns = [np.array(x, np.int64) for x in (self._who, self._from, self._blocks)]

    def _run(self, sizes: Sequence[int], cycle: int, block: int) -> None:
        slots: list[list[int] | None] = [None] * cycle  # outer and how many of its elements were taken
        left = iter(range(len(sizes)))
        more = True
        while more or any(slots):
            opened = [slot for slot in slots if slot is not None]
            full = 0
            if not (more and len(opened) < cycle) and opened:
                full = min((sizes[outer] - taken) // block for outer, taken in opened)
            if full:
                self._stretch(opened, block, full)
                for one in opened:
                    one[1] += full * block
                continue
            for at in range(cycle):
                slot = slots[at]
                if slot is None and more:
                    outer = next(left, None)
                    more = outer is not None
                    slot = None if outer is None else [outer, 0]
                if slot is None:
                    continue
                some = min(block, sizes[slot[0]] - slot[1])
                if some:
                    self._stretch([slot], some, 1)
                    slot[1] += some
                slots[at] = slot if some == block else None

    def _stretch(self, opened: Sequence[list[int]], block: int, turns: int) -> None:
        self._starts.append(self.size)
        self._widths.append(len(opened) * block)
        self._firsts.append(len(self._who))
        for which, taken in opened:
            self._who.append(which)
            self._from.append(taken)
            self._blocks.append(block)
        self.size += len(opened) * block * turns

    def __call__(self, places: Array) -> tuple[Array, Array]:
        """The numbers of the datasets at some places, and the places in them."""
        starts, widths, firsts = self._tables
        who, taken, blocks = self._columns
        stretch = np.searchsorted(starts, places, side="right") - 1
        turn, within = np.divmod(places - starts[stretch], widths[stretch])
        block = blocks[firsts[stretch]]
        slot, offset = np.divmod(within, block)
        entry = firsts[stretch] + slot
        return who[entry], taken[entry] + turn * block + offset
