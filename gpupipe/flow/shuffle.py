"""shuffle: a uniform choice from a buffer, with tf.data's buffer semantics and gpupipe's own numbers.

The buffer is full before the first element leaves; output p holds an element of input index <= p + size - 1. Draws
depend on (seed, epoch, pass, node seed) and on how many elements left before, on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..random import BatchRng, hash64, mix64
from .base import Context, Element, Flow, Hole
from .elements import close
from .memory import bytes_of_all

__all__ = ["ShuffleFlow", "shuffled_order"]

_DRAWS = 1024
"""Words of one block: its key is that of the pass and its number."""

_BLOCKS = 16
"""Blocks drawn at once, from the second time on: 16 together cost a third of 16 one by one."""


@dataclass(frozen=True, slots=True)
class ShuffleFlow:
    """Elements in another order.

    Attributes:
        size: of the buffer, in elements.
        seed: of this node, mixed with the chain's.
        reshuffle: False gives the same order in every epoch and pass.
        repeat: passes of the fused repeat, negative for endless, 1 where there is none.
        number: of the fused repeat node.
    """

    source: Flow
    size: int
    seed: int | None
    reshuffle: bool = True
    repeat: int = 1
    number: int = 0

    def open(self, at: Context) -> Iterator[Element]:
        return Shuffled(self, at)


class Draws:
    """Numbers for one pass of a shuffle, drawn in blocks.

    Attributes:
        left: the next 32-bit words, the first one last.
    """

    __slots__ = ("_at", "_epoch", "_key", "_seed", "left")

    def __init__(self, flow: ShuffleFlow, at: Context) -> None:
        self._seed = (
            at.run.settings.seed if flow.seed is None else mix64(at.run.settings.seed, flow.seed & (1 << 64) - 1)
        )
        self._epoch = at.epoch if flow.reshuffle else 0
        self._key = at.key if flow.reshuffle else at.outer
        self._at = 0
        self.left: list[int] = []

    def more(self) -> list[int]:
        """Draw the next words, when none are left."""
        blocks = range(self._at, self._at + (_BLOCKS if self._at else 1))
        keys = np.array([mix64(self._key, block) for block in blocks], np.uint64)
        words = BatchRng(self._seed, self._epoch, keys, hash64("shuffle")).words(_DRAWS)
        self.left = words.ravel()[::-1].tolist()
        self._at = blocks.stop
        return self.left


class Pass:
    """The buffer of one pass and where it is filled from.

    Attributes:
        ring: the buffer; element i of it is at (start + i) % size.
        start: below `size`.
        steady: the ring has its full size and one free slot, the one before `start`: each element that comes sends one
            away, see `Shuffled`.
    """

    __slots__ = ("count", "draws", "input", "items", "more", "passing", "ring", "size", "start", "steady", "stopped")

    def __init__(self, flow: ShuffleFlow, at: Context) -> None:
        self.input = flow.source.open(at)
        self.items = iter(self.input)
        self.stopped = at.run.stopped.is_set
        self.draws = Draws(flow, at)
        self.size = flow.size
        # Grown as it fills: shuffle(10**9) of a small dataset means "all of it", not a gigabyte of empty slots.
        self.ring: list[Any] = []
        self.start = 0
        self.count = 0
        self.more = True
        self.steady = False
        self.passing: list[Element] = []  # errors on their way to the user: never part of the buffer

    def fill(self, limit: int) -> None:
        """Take at most `limit` elements from the input, as many as there is room for."""
        items, ring, size, stopped = self.items, self.ring, self.size, self.stopped
        while limit > 0 and self.more and self.count < size:
            element = None if stopped() else next(items, None)
            if element is None:
                self.end()
                return
            if type(element[0]) is Hole and element[0].raised:
                self.passing.append(element)
                return
            slot = (self.start + self.count) % size
            if slot == len(ring):
                ring.append(keep(element))
            else:
                ring[slot] = keep(element)
            self.count += 1
            limit -= 1

    def pop(self) -> Element:
        """Choose one of the elements in the buffer."""
        ring, start, size = self.ring, self.start, self.size
        word = (self.draws.left or self.draws.more()).pop()
        chosen = (start + word % self.count) % size
        element: Element = ring[chosen]
        ring[chosen] = ring[start]
        ring[start] = None
        self.start = (start + 1) % size
        self.count -= 1
        self.steady = self.more and self.count == size - 1
        return element

    def end(self) -> None:
        """There is nothing more to fill from."""
        self.more = self.steady = False
        close(self.input)


def keep(element: Element) -> Element:
    """An element that can be held for long: it owns its bytes instead of pinning the block they came in."""
    value, stream, position = element
    if type(value) is Hole or not any(type(column) is memoryview for column in value):
        return element
    return tuple([bytes(column) if type(column) is memoryview else column for column in value]), stream, position


class Shuffled:
    """The running shuffle. With a fused repeat the next pass fills while the last one drains; passes never mix."""

    def __init__(self, flow: ShuffleFlow, at: Context) -> None:
        self._flow = flow
        self._at = at
        self._opened = 0
        self._pass = self._next_pass()
        self._ahead: Pass | None = None
        self._any = False
        at.run.holds(self, f"shuffle({flow.size})")

    def _next_pass(self) -> Pass | None:
        if self._opened == self._flow.repeat:
            return None
        at = self._at.under(self._flow.number, self._opened)
        self._opened += 1
        return Pass(self._flow, at)

    def __iter__(self) -> Iterator[Element]:
        return self

    def __next__(self) -> Element:
        now = self._pass
        if now is not None and now.steady:  # what the loop below does, for one that comes and one that leaves
            element = None if now.stopped() else next(now.items, None)
            if element is None:
                now.end()
            else:
                value = element[0]
                if type(value) is Hole:
                    if value.raised:
                        return element
                else:
                    for column in value:
                        if type(column) is memoryview:
                            element = keep(element)
                            break
                ring, start, size, draws = now.ring, now.start, now.size, now.draws
                ring[start - 1] = element
                chosen = start + (draws.left or draws.more()).pop() % size
                if chosen >= size:
                    chosen -= size
                leaving: Element = ring[chosen]
                ring[chosen] = ring[start]
                ring[start] = None
                now.start = start + 1 if start + 1 < size else 0
                return leaving
        while (now := self._pass) is not None:
            if now.more and now.count < now.size:
                now.fill(now.size)
            if now.passing:
                return now.passing.pop(0)
            if now.count:
                self._any = True
                if not now.more:
                    self._fill_ahead()
                return now.pop()
            if not self._any:  # a pass without an element ends an endless repeat too
                self._pass = None
                break
            self._pass, self._ahead = self._ahead or self._next_pass(), None
            self._any = self._pass is not None and self._pass.count > 0
        raise StopIteration

    def held(self) -> tuple[int, int]:
        """Elements in the buffer, and their bytes."""
        return bytes_of_all(slot for one in (self._pass, self._ahead) if one is not None for slot in list(one.ring))

    def _fill_ahead(self) -> None:
        if self._ahead is None:
            self._ahead = self._next_pass()
        if self._ahead is not None:
            self._ahead.fill(2)

    def close(self) -> None:
        """Close the inputs."""
        for one in (self._pass, self._ahead):
            if one is not None:
                close(one.input)
        self._pass = self._ahead = None


def shuffled_order(count: int, seed: int, epoch: int, key: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A permutation of range(count) that depends on (seed, epoch, key) only."""
    keys = BatchRng(seed, epoch, np.arange(count, dtype=np.uint64), mix64(key, hash64("order")) & 0xFFFF_FFFF).words(2)
    return np.lexsort((np.arange(count), keys[:, 1], keys[:, 0])).astype(np.int64)
