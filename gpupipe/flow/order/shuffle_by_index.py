"""shuffle_by_index: the shuffle of a source whose elements can be had by place: a range, arrays, a list of files.

Such a buffer holds places, 8 bytes each, and fills as fast as they are counted; an element is made when it leaves.
Which one leaves depends on how many there are and on the draws, never on what they are, so the order is that of
`shuffle`. It is worked out for some elements at once, so that they can be made at once; a snapshot takes back those
that were not given yet.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from operator import length_hint

import numpy as np

from ...plan.order import buffer_name
from ..access import access
from ..element import Element
from ..run import Context, Flow
from ..sources.arrays import FilesFlow, IndexedSource, RangeFlow, SlicesFlow
from ..state.snapshot import Deferred, State, decode_ints, encode_ints, int_part, part
from ..step import Running
from ..words import WordStream
from .repeat import EmptyPasses
from .shuffle import ShuffleFlow

__all__ = ["PLACE", "ShuffleByIndexFlow", "has_cheap_index"]

PLACE = 8
"""Bytes of a place in the buffer."""


_FILL = 1 << 16
"""Places that are taken at once; then somebody looks whether to stop."""


def has_cheap_index(flow: Flow) -> bool:
    """Whether the elements of a flow can be had by place at no cost."""
    return isinstance(flow, RangeFlow | FilesFlow) or (isinstance(flow, SlicesFlow) and not flow.whole)


@dataclass(frozen=True, slots=True)
class ShuffleByIndexFlow(ShuffleFlow):
    """A shuffle whose source has places, see `has_cheap_index`."""

    def open(self, at: Context, state: State = None) -> Running:
        return _Shuffled(self, at, state)


class _Pass:
    """The buffer of one pass.

    Between two steps it has a free slot, the one in front of `start`, unless the source has come to its end: each place
    that comes sends one away. The first slot of a step is where the last place came in, so a step can be taken back.

    Attributes:
        ring: the buffer; place i of it is at (start + i) % size.
        count: how many places it holds.
        taken: how many came from the source.
        out: those that left in the last block, in their order.
    """

    __slots__ = ("_steady", "_words", "at", "count", "draws", "out", "placed", "ring", "size", "start", "taken")

    def __init__(self, flow: ShuffleByIndexFlow, at: Context, state: State = None) -> None:
        self.at = at
        self.placed: IndexedSource = access(flow.source, at)  # type: ignore[assignment]
        self.draws = WordStream(at, flow.seed, flow.reshuffle, "shuffle")
        self.size = flow.size
        self.ring = array("q")
        self.start = self.count = self.taken = 0
        self.out: list[int] = []
        self._words: list[int] = []
        self._steady = 0  # of the last block: in so many steps a place came
        if state is not None:
            self._resume(state)

    def _resume(self, state: State) -> None:
        self.draws.resume(part(state, "draws"))
        self.taken, begin = int_part(state, "taken"), int_part(state, "begin")
        self.ring = array("q", [begin + place for place in decode_ints(part(state, "places"))])
        self.count = len(self.ring)

    def block(self) -> list[int]:
        """The places that leave next, in their order; none at the end, or once the run is stopped."""
        self.out = []
        if not self._fill():
            return self.out
        self._words = words = self.draws.more()[::-1]
        ring, size, start, count, taken = self.ring, self.size, self.start, self.count, self.taken
        leave = self.out.append
        self._steady = steady = min(len(words), self.placed.size - taken)
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
        """Take places until one slot is left; whether there is anything to give."""
        room, left = self.size - 1 - self.count, self.placed.size - self.taken
        stopped = self.at.run.stopped
        if len(self.ring) < self.size and left:
            while room and left and not stopped.is_set():
                some = min(room, left, _FILL)
                self.ring.extend(range(self.taken, self.taken + some))
                self.taken += some
                self.count += some
                room, left = room - some, left - some
            if left:
                self.ring.append(-1)
        return not stopped.is_set() and (self.count > 0 or left > 0)

    def snapshot(self, left: int) -> State:
        """What the buffer holds.

        Args:
            left: so many places of the last block were not given yet: they are in it still.
        """
        draws = self.draws.snapshot()
        draws["left"] -= len(self.out) - left  # the words of a block are taken when it is given
        block = self._words, self.out, self._steady
        return _Held(self.ring[:], self.size, self.start, self.count, self.taken, draws, *block, left)


@dataclass(frozen=True, slots=True)
class _Held(Deferred):
    """A buffer after its last block, and that block, of which the last `left` indices were not given yet."""

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
        return 1 + len(self.ring) // 2048  # 16 KB are copied in about 1 us

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
    """The running shuffle, one pass of a fused repeat after the other."""

    def __init__(self, flow: ShuffleByIndexFlow, at: Context, state: State = None) -> None:
        self._flow = flow
        self._at = at
        self._empty = EmptyPasses(flow.where, flow.repeat < 0, at, 0 if state is None else int_part(state, "empty"))
        self._opened = 0 if state is None else int_part(state, "opened")
        self._pass: _Pass | None = None
        self._closed = False
        if state is not None and part(state, "pass") is not None:
            self._pass = _Pass(flow, at.in_pass(max(self._opened - 1, 0), flow.repeat), part(state, "pass"))
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
            places = now.block()
            if places:
                self._empty.count = 0
                self._left = iter(list(now.placed.make(places)))
                yield self._left
            elif at.run.stopped.is_set():
                return
            else:
                self._pass = None

    def snapshot(self) -> State:
        """Which pass it is, how many in a row had no element, and what the buffer holds."""
        now = None if self._pass is None else self._pass.snapshot(length_hint(self._left))
        return {"opened": self._opened, "empty": self._empty.count, "pass": now}

    def buffer_usage(self) -> tuple[int, int]:
        """Places in the buffer, and their bytes. What is worked out of the next elements counts as not given yet."""
        now = self._pass
        if now is None:
            return 0, 0
        given = now.taken - now.count - length_hint(self._left)
        count = min(now.size - 1, now.placed.size - given) if given else now.count
        return count, PLACE * count

    def close(self) -> None:
        """Let go of the buffer."""
        self._closed = True
        self._pass = None
