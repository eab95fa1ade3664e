"""shuffle_by_index: the shuffle of a source with access by index: a range, arrays, a list of files.

The buffer holds indices, 8 bytes each, and fills as fast as they are counted; an element is made when it leaves. The
choice depends on the number of elements and on the draws, never on their values, so the order is that of `shuffle`. It
is computed for a block of elements, which are made together; a snapshot undoes the steps of those not given yet.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import chain
from operator import length_hint

import numpy as np

from ...classes import dataclass
from ...plan.order import buffer_name
from ..element import Element
from ..run import Context, Flow
from ..sources.arrays import FilesFlow, RangeFlow, SlicesFlow, indexed
from ..state.snapshot import Deferred, State, as_int, decode_ints, encode_ints, int_part, part
from ..step import Running
from ..words import WordStream
from .repeat import EmptyPasses
from .shuffle import ShuffleFlow

__all__ = ["INDEX_BYTES", "ShuffleByIndexFlow", "has_cheap_index"]

INDEX_BYTES = 8
"""Bytes of an index in the buffer."""


_FILL = 1 << 16
"""Indices that are taken at a time, between two looks at the stop flag."""


def has_cheap_index(flow: Flow) -> bool:
    """Whether access by index to the elements of a flow costs nothing."""
    return isinstance(flow, RangeFlow | FilesFlow) or (isinstance(flow, SlicesFlow) and not flow.whole)


@dataclass(frozen=True, slots=True)
class ShuffleByIndexFlow(ShuffleFlow):
    """A shuffle of a source for which `has_cheap_index` is true."""

    def open(self, at: Context, state: State = None) -> Running:
        return _Shuffled(self, at, state)


class _Pass:
    """The buffer of one pass.

    Between two steps it has one free slot, the one before `start`, unless the source has ended: one index comes for
    each that leaves. A step moves one index to the slot that its random word names, so it can be undone.

    Attributes:
        ring: the buffer; its entry i is in slot (start + i) % size.
        count: number of indices in it.
        taken: number of indices taken from the source.
        out: the indices that left in the last block, in order.
    """

    __slots__ = ("_steady", "_words", "at", "count", "draws", "indexed", "out", "ring", "size", "start", "taken")

    def __init__(self, flow: ShuffleByIndexFlow, at: Context, state: State = None) -> None:
        self.at = at
        self.indexed = indexed(flow.source, at)
        self.draws = WordStream(at, flow.seed, flow.reshuffle, "shuffle")
        self.size = flow.size
        self.ring = array("q")
        self.start = self.count = self.taken = 0
        self.out: list[int] = []
        self._words: list[int] = []
        self._steady = 0  # steps of the last block in which an index came
        if state is not None:
            self._resume(state)

    def _resume(self, state: State) -> None:
        self.draws.resume(part(state, "draws"))
        self.taken, first = int_part(state, "taken"), int_part(state, "begin")
        self.ring = array("q", [first + index for index in decode_ints(part(state, "places"))])
        self.count = len(self.ring)

    def block(self) -> list[int]:
        """The indices that leave next, in order; empty at the end, or once the run is stopped."""
        self.out = []
        if not self._fill():
            return self.out
        self._words = words = self.draws.more()[::-1]
        ring, size, start, count, taken = self.ring, self.size, self.start, self.count, self.taken
        leave = self.out.append
        self._steady = steady = min(len(words), self.indexed.size - taken)
        for word in words[:steady]:  # one comes, one leaves
            ring[start - 1] = taken
            taken += 1
            slot = start + word % size
            if slot >= size:
                slot -= size
            leave(ring[slot])
            ring[slot] = ring[start]
            start = start + 1 if start + 1 < size else 0
        for word in words[steady : steady + count]:
            slot = start + word % count
            if slot >= size:
                slot -= size
            leave(ring[slot])
            ring[slot] = ring[start]
            start = start + 1 if start + 1 < size else 0
            count -= 1
        self.start, self.count, self.taken = start, count, taken
        return self.out

    def _fill(self) -> bool:
        """Take indices until one slot is free. Returns whether any element is left to give."""
        room, left = self.size - 1 - self.count, self.indexed.size - self.taken
        stopped = self.at.run.stopped
        if len(self.ring) < self.size and left:
            while room and left and not stopped.on:
                some = min(room, left, _FILL)
                self.ring.extend(range(self.taken, self.taken + some))
                self.taken += some
                self.count += some
                room, left = room - some, left - some
            if left:
                self.ring.append(-1)
        return not stopped.on and (self.count > 0 or left > 0)

    def snapshot(self, left: int) -> State:
        """The buffer before the last `left` indices of the block left it, whose elements were not given yet."""
        draws = self.draws.snapshot()
        draws["left"] -= len(self.out) - left  # `draws` still has the block's words: those of given elements are used
        block = self._words, self.out, self._steady
        return _Held(self.ring[:], self.size, self.start, self.count, self.taken, draws, *block, left)


@dataclass(frozen=True, slots=True)
class _Held(Deferred):
    """A copy of a buffer after its last block, and that block, whose last `left` indices were not given yet."""

    ring: array[int]
    size: int
    start: int
    count: int
    taken: int
    draws: State
    words: list[int]
    out: list[int]
    steady: int
    left: int

    def cost(self) -> int:
        return 1 + len(self.ring) // 128  # a copy for about each quarter of the buffer that is given

    def json(self) -> State:
        ring, size, start, count, taken = self.ring[:], self.size, self.start, self.count, self.taken
        for i in range(len(self.out) - 1, len(self.out) - 1 - self.left, -1):  # put back what was not given
            start = start - 1 if start else size - 1
            many = size if i < self.steady else count + 1
            slot = (start + self.words[i] % many) % size
            ring[start] = ring[slot]
            ring[slot] = self.out[i]
            if i < self.steady:
                taken -= 1
            else:
                count += 1
        indices = np.array([*ring[start:], *ring[:start]], np.int64)[:count]
        first = int(indices.min()) if count else taken
        return {"begin": first, "places": encode_ints(indices - first), "taken": taken, "draws": self.draws}


class _Shuffled(Running):
    """The running shuffle, one pass of a fused repeat after another."""

    def __init__(self, flow: ShuffleByIndexFlow, at: Context, state: State = None) -> None:
        self._flow = flow
        self._at = at
        self._empty = EmptyPasses(flow.where, flow.repeat < 0, at, 0 if state is None else int_part(state, "empty"))
        self._opened = 0 if state is None else int_part(state, "opened", flow.repeat)
        self._pass: _Pass | None = None
        self._closed = False
        if state is not None and part(state, "pass") is not None:
            self._pass = _Pass(flow, at.in_pass(as_int(self._opened - 1, "opened"), flow.repeat), part(state, "pass"))
        self._left: Iterator[Element] = iter(())  # of the last block
        self.items = chain.from_iterable(self._blocks())
        at.run.track_buffer(self, f"shuffle({buffer_name(flow.size)})")

    def _blocks(self) -> Iterator[Iterator[Element]]:
        flow, at = self._flow, self._at
        while not self._closed:
            now = self._pass
            if now is None:
                if self._opened == flow.repeat or not self._empty.another():
                    return
                now = self._pass = _Pass(flow, at.in_pass(self._opened, flow.repeat))
                self._opened += 1
                self._empty.count += 1
            indices = now.block()
            if indices:
                self._empty.count = 0
                self._left = iter(list(now.indexed.make(indices)))
                yield self._left
            elif at.run.stopped.on:
                return
            else:
                self._pass = None

    def snapshot(self) -> State:
        """The passes opened, how many in a row had no element, and the buffer."""
        now = None if self._pass is None else self._pass.snapshot(length_hint(self._left))
        return {"opened": self._opened, "empty": self._empty.count, "pass": now}

    def buffer_usage(self) -> tuple[int, int]:
        """Indices in the buffer, and their bytes. Those of the present block count until their elements are given."""
        now = self._pass
        if now is None:
            return 0, 0
        given = now.taken - now.count - length_hint(self._left)
        count = min(now.size - 1, now.indexed.size - given) if given else now.count
        return count, INDEX_BYTES * count

    def close(self) -> None:
        self._closed = True
        self._pass = None
