"""interleave: elements of several datasets in turn, in tf.data's exact order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter, sleep
from typing import Any, NamedTuple

import numpy as np

from ...classes import dataclass
from ...graph.op import Array
from ...plan.index import ENDLESS
from ...random import ROOT
from ...threads import DaemonPool, snapshot
from ..access import Joined, RandomAccess
from ..buffer_sizes import bytes_of
from ..element import Element, Raised
from ..run import PEEKING, SILENT_REPLAY, Context, Flow
from ..stall import SOMEWHERE, Watch, Where
from ..state.checkpoints import CheckpointedInput
from ..state.snapshot import State, fast_forward, int_part, part
from ..step import Running, close
from ..tuning import Tuned
from .inner import Inner, inner_accesses, open_inner
from .read_ahead import ReadAhead

__all__ = ["InterleaveFlow", "InterleaveOrder"]

_READ_AHEAD = 0.01
"""Seconds for which outer elements are read ahead before an element is given."""


_REMOTE_AHEAD = 8
"""Datasets that are opened before they have a slot, where remote files are read."""


@dataclass(frozen=True, slots=True)
class InterleaveFlow:
    """`cycle` inner datasets in turn, `block` elements of each; an exhausted slot is refilled when it is next.

    Attributes:
        deterministic: False takes the next dataset that has an element ready, and waits only if none has.
        threads: threads that read ahead in datasets which call Python; as many of these are opened ahead.
        tuned: whether their number may change while it runs, from `threads` on.
    """

    source: Flow
    inner: Inner
    cycle: int
    block: int
    deterministic: bool = True
    where: Where = SOMEWHERE
    threads: int = 0
    tuned: bool = False

    def open(self, at: Context, state: State = None) -> Running:
        return Interleaved(self, at, state)

    def access(self, at: Context) -> RandomAccess:
        parts = inner_accesses(self.source, self.inner, at)
        sizes = [min(part.size, ENDLESS >> 20) for part in parts]
        order = InterleaveOrder(sizes, self.cycle, self.block)
        return Joined(ENDLESS if any(part.size == ENDLESS for part in parts) else order.size, order, parts.__getitem__)


class Interleaved(Running):
    """The interleave algorithm of tf.data, checked against it in 100 configurations."""

    def __init__(self, flow: InterleaveFlow, at: Context, state: State = None) -> None:
        self._flow = flow
        self._context = at
        self._input = CheckpointedInput(flow.source, at, part(state))
        self._outer = self._input.items
        self._slots: list[Running | None] = [None] * flow.cycle
        self._items: list[Any] = [None] * flow.cycle  # `iter` of each slot
        self._numbers: list[int] = [0] * flow.cycle  # of the slots' outer elements
        self._at = 0
        self._run = 0
        self._more = True
        self._open = 0
        self._watch = Watch(flow.where)
        self._overtakes = not flow.deterministic
        self._waiting: deque[_Waiting] = deque()  # outer elements that have no slot yet
        self._entered = self._input.count  # number of outer elements before these
        self._pool: DaemonPool | None = None
        self._threads = flow.threads
        self._tuned: Tuned | None = None
        if state is not None:
            self._resume(state)

    def _resume(self, state: State) -> None:
        """Open the datasets that were open; the input reads their outer elements again."""
        self._at, self._run = int_part(state, "at") % self._flow.cycle, int_part(state, "run")
        self._more = bool(state["more"])
        slots = [(i, slot) for i, slot in enumerate(state["slots"]) if slot is not None]
        recovered = zip(slots, self._input.recovered, strict=False)  # fewer if it was stopped
        before = SILENT_REPLAY.get()
        try:
            SILENT_REPLAY.set(True)
            for (i, slot), (outer, number) in recovered:
                self._put(i, number, self._open_inner(outer, slot))
        finally:
            SILENT_REPLAY.set(before)

    def _open_inner(self, outer: Element, state: State = None) -> Running:
        """Open the dataset of an outer element, with threads that read ahead where it calls Python."""
        flow, at = self._flow, self._context
        inside, skip = part(state, "input"), 0 if state is None else int_part(state, "skip")
        if flow.threads and self._pool is not None and getattr(flow.inner.open, "peeks", False):
            # Opening it may take as long as computing its first element: a thread does it.
            return self._read_ahead(_Once(lambda: open_inner(flow.inner, at, outer, inside)), state)
        slot = open_inner(flow.inner, at, outer, inside)
        if flow.threads and getattr(flow.inner.open, "python", False):
            return self._read_ahead(_Once(lambda: slot), state, slot)
        fast_forward(slot, skip, at)
        return slot

    def _read_ahead(self, dataset: _Once, state: State, opened: Running | None = None) -> ReadAhead:
        flow, at = self._flow, self._context
        pool = self._pool  # another thread may close the run meanwhile
        if pool is None:
            counters = self._counters = at.run.counters.step(flow.where.step, flow.where.line)
            if flow.tuned and at.outer == ROOT:  # one that is opened for each element runs many times at once
                most, held = flow.cycle, flow.block + 1
                self._tuned = at.run.tuner.threads(self, flow.where, self._threads, most, held, counters)
                self._threads = self._allowed(self._tuned)
            pool = self._pool = DaemonPool(self._threads, "gpupipe-interleave", counters.pool(self._threads))
            at.run.on_close(self._end)
            at.run.track_buffer(self, "interleave")
        slot = ReadAhead(dataset, at, pool, flow.block + 1, state, opened)
        slot.start()
        return slot

    def _put(self, i: int, number: int, slot: Running) -> None:
        self._slots[i] = slot
        self._items[i] = iter(slot)
        self._numbers[i] = number
        self._open += 1
        self._close_if_stopped(slot)

    def _close_if_stopped(self, slot: Running | None) -> None:
        """Close a dataset that another thread, which closed the run meanwhile, may not have found in `_end`."""
        if isinstance(slot, ReadAhead) and self._context.run.stopped.on:
            slot.close()

    def snapshot(self) -> State:
        """The numbers of the open outer elements, the states of their datasets, and which slot is next."""
        return {
            "source": self._input.holding(self._open_numbers(), taken=self._entered),
            "slots": [None if slot is None else state_of(slot) for slot in self._slots],
            "at": self._at,
            "run": self._run,
            "more": self._more,
        }

    def _open_numbers(self) -> list[int]:
        return [number for slot, number in zip(self._slots, self._numbers, strict=True) if slot is not None]

    def __next__(self) -> Element:
        flow, cycle = self._flow, self._flow.cycle
        empty = 0
        while self._more or self._open:
            if self._overtakes:
                self._go_to_ready_slot()
            at = self._at
            items = self._items[at]
            if items is not None:
                element: Element | None = next(items, None)
                if element is not None:
                    if type(element[0]) is Raised:
                        return element  # an error, not an element: it does not count
                    if self._tuned is not None:
                        self._adapt(self._tuned, element)
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
                if self._context.run.stopped.on:
                    break
            elif self._more:
                if self._input.due():
                    self._input.checkpoint(min(self._open_numbers(), default=self._entered))
                if len(self._waiting) <= self._ahead():
                    self._open_next()
                if not self._waiting:
                    self._more = False
                    continue
                number, outer, slot = self._waiting.popleft()
                self._entered = number + 1
                if slot is None:
                    return outer
                self._put(at, number, slot)
            else:
                self._advance(cycle)
        self._end()
        raise StopIteration

    def _open_next(self) -> None:
        """Open the dataset of the next outer element; where they are opened ahead, of as many as `_ahead` says.

        Stops early where outer elements come slowly.
        """
        until = perf_counter() + _READ_AHEAD
        while True:
            outer = next(self._outer, None)
            if outer is None:
                return
            slot = None
            if type(outer[0]) is not Raised:
                slot = self._open_inner(outer)
            self._waiting.append(_Waiting(self._input.count - 1, outer, slot))
            self._close_if_stopped(slot)
            if len(self._waiting) > self._ahead() or perf_counter() > until:
                return

    def _ahead(self) -> int:
        """Datasets that are opened before they have a slot: while one waits for a thread or a server, so do others."""
        if self._pool is not None:
            return self._threads
        return _REMOTE_AHEAD if self._context.run.remote.used and PEEKING.get() is None else 0

    def _adapt(self, tuned: Tuned, element: Element) -> None:
        """Change the number of threads as AUTOTUNE says, and tell it how large elements are."""
        if tuned.weigh:
            self._context.run.tuner.weighed(tuned, bytes_of(element))
        threads, pool = self._allowed(tuned), self._pool
        if threads != self._threads and pool is not None:
            self._threads = self._counters.workers = threads
            pool.resize(threads)

    def _allowed(self, tuned: Tuned) -> int:
        return 1 if PEEKING.get() is not None else tuned.value  # steps above are not known before

    def _advance(self, cycle: int) -> None:
        self._run = 0
        self._at = (self._at + 1) % cycle

    def _go_to_ready_slot(self) -> None:
        """Go to the first slot, from the current one on, that is ready; if none is, stay, or wait for one."""
        cycle = self._flow.cycle
        while True:
            for step in range(cycle):
                at = (self._at + step) % cycle
                slot = self._slots[at]
                if (slot is None and self._more) or (slot is not None and slot.ready()):
                    if step:
                        self._at, self._run = at, 0
                    return
            # Waiting helps only if all open datasets read ahead: one becomes ready without being asked.
            if not all(slot is None or slot.runs_ahead for slot in self._slots):
                return
            sleep(0.001)
            if self._context.run.stopped.on:
                return

    def close(self) -> None:
        """Close every open dataset and end the threads."""
        self._end()
        for slot in (*self._slots, *(one.slot for one in snapshot(self._waiting))):
            close(slot)
        self._waiting.clear()
        self._slots = [None] * self._flow.cycle
        self._items = [None] * self._flow.cycle
        self._open = 0
        self._more = False
        close(self._input.inner)

    def buffer_usage(self) -> tuple[int, int]:
        """The number of elements read ahead, and their bytes."""
        slots = [*self._slots, *(one.slot for one in snapshot(self._waiting))]
        sizes = [slot.buffer_usage() for slot in slots if isinstance(slot, ReadAhead)]
        return sum(count for count, _ in sizes), sum(size for _, size in sizes)

    def _end(self, wait: bool = True) -> None:
        """End the threads that read ahead, and wake up those that wait for them."""
        pool = self._pool
        if pool is None:
            return
        waiting = snapshot(self._waiting)  # another thread may be in `__next__`; see `_close_if_stopped`
        for slot in (*(one.slot for one in waiting), *self._slots):
            if isinstance(slot, ReadAhead):
                slot.close()
        pool.close(wait)
        self._pool = None
        if self._tuned is not None:
            self._tuned.users.discard(self)
        self._context.run.forget(self._end)


@dataclass(frozen=True, slots=True)
class _Once:
    """The dataset of one outer element as a flow, which is opened once."""

    opened: Callable[[], Running]

    def open(self, at: Context, state: State = None) -> Running:
        return self.opened()


class _Waiting(NamedTuple):
    """An outer element without a slot, its number, and its open dataset; None for a `Raised`."""

    number: int
    outer: Element
    slot: Running | None


def state_of(slot: Running) -> State:
    """Return the state of a slot: that of its dataset, and how many elements were given after it."""
    return slot.state() if isinstance(slot, ReadAhead) else {"at": 0, "input": slot.snapshot(), "skip": 0}


class InterleaveOrder:
    """The order of `interleave` without running it: which element of which dataset an index is.

    The indices fall into stretches in which the same datasets alternate: at most a few for each dataset.

    Args:
        sizes: of the datasets.
        cycle: datasets that are open at a time.
        block: consecutive elements of each.
    """

    def __init__(self, sizes: Sequence[int], cycle: int, block: int) -> None:
        # Per stretch: its first index, the elements of one round over its datasets, the number of its first entry.
        self._stretches: list[tuple[int, int, int]] = []
        # Per stretch and dataset: the dataset, its first element there, its elements in one round.
        self._entries: list[tuple[int, int, int]] = []
        self.size = 0
        self._run(sizes, cycle, block)
        self._tables = [np.array(x, np.int64).reshape(-1, 3).T.copy() for x in (self._stretches, self._entries)]

    def _run(self, sizes: Sequence[int], cycle: int, block: int) -> None:
        slots: list[list[int] | None] = [None] * cycle  # a dataset and how many of its elements were taken
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

    def _stretch(self, opened: Sequence[list[int]], block: int, rounds: int) -> None:
        self._stretches.append((self.size, len(opened) * block, len(self._entries)))
        self._entries += [(dataset, taken, block) for dataset, taken in opened]
        self.size += len(opened) * block * rounds

    def __call__(self, indices: Array) -> tuple[Array, Array]:
        """Return the datasets at some indices, int64[N], and the indices within them, int64[N]."""
        (starts, widths, firsts), (datasets, taken, blocks) = self._tables
        stretch = np.searchsorted(starts, indices, side="right") - 1
        round_, within = np.divmod(indices - starts[stretch], widths[stretch])
        block = blocks[firsts[stretch]]
        slot, offset = np.divmod(within, block)
        entry = firsts[stretch] + slot
        return datasets[entry], taken[entry] + round_ * block + offset
