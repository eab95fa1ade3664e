"""select: take, skip, shard and enumerate. They count holes like elements."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...classes import dataclass
from ...errors import StateError
from ...graph.op import Array
from ..access import RandomAccess, Remapped, Through, access, strided
from ..element import Element, Hole, Raised, is_element
from ..run import Context, Flow
from ..stall import SOMEWHERE, Watch, Where
from ..state.snapshot import State, int_part, part
from ..step import Count, Running, close

__all__ = ["EnumerateFlow", "ShardFlow", "SkipFlow", "TakeFlow"]


@dataclass(frozen=True, slots=True)
class TakeFlow:
    """The first `count` elements."""

    source: Flow
    count: int

    def open(self, at: Context, state: State = None) -> Running:
        return _Taken(self, at, state)

    def access(self, at: Context) -> RandomAccess:
        source = access(self.source, at)
        return source if self.count < 0 else Remapped(source, min(self.count, source.size), lambda places: places)


class _Taken(Running):
    def __init__(self, flow: TakeFlow, at: Context, state: State) -> None:
        self._left = flow.count if state is None or flow.count < 0 else int_part(state, "left")
        if self._left > flow.count >= 0:
            raise StateError(f"load_state_dict needs a state of take({flow.count}), got one with {self._left} left")
        self.items = iter(())
        if self._left:
            self.source = flow.source.open(at, part(state))
            self.items = self._taken(self.source)

    def _taken(self, inner: Running) -> Iterator[Element]:
        for element in inner:
            if type(element[0]) is not Raised:
                self._left -= 1
            yield element
            if not self._left:
                break
        close(inner)  # stops reading ahead now, not when the pipeline ends

    def snapshot(self) -> State:
        """The number of elements left; after the last one the input does not matter."""
        if not self._left or self.source is None:
            return {"left": 0, "source": None}
        return {"left": max(self._left, 0), "source": self.source.snapshot()}


@dataclass(frozen=True, slots=True)
class SkipFlow:
    """All but the first `count` elements."""

    source: Flow
    count: int
    where: Where = SOMEWHERE

    def open(self, at: Context, state: State = None) -> Running:
        inner = self.source.open(at, part(state))
        left = Count(self.count if state is None or self.count < 0 else int_part(state, "left", self.count))
        return Running(self._skipped(inner, at, left), inner, left=left)

    def _skipped(self, inner: Iterator[Element], at: Context, left: Count) -> Iterator[Element]:
        watch, stopped = Watch(self.where), at.run.stopped
        for element in inner:
            if stopped.on:
                return
            if not left.n:
                yield element
                break
            if is_element(element):
                left.n -= 1
                watch.nothing(self.count - left.n)
            else:
                yield element
        for element in inner:
            yield element

    def access(self, at: Context) -> RandomAccess:
        return strided(access(self.source, at), self.count, 1)


@dataclass(frozen=True, slots=True)
class ShardFlow:
    """Every `shards`-th element."""

    source: Flow
    shards: int
    index: int

    def open(self, at: Context, state: State = None) -> Running:
        inner = self.source.open(at, part(state))
        place = Count(self.shards - self.index if state is None else int_part(state, "place", self.shards))
        return Running(self._chosen(inner, place), inner, place=place)

    def _chosen(self, inner: Iterator[Element], place: Count) -> Iterator[Element]:
        for element in inner:
            if type(element[0]) is Raised:
                yield element
            elif place.n == self.shards:
                place.n = 1
                yield element
            else:
                place.n += 1

    def access(self, at: Context) -> RandomAccess:
        return strided(access(self.source, at), self.index, self.shards)


@dataclass(frozen=True, slots=True)
class EnumerateFlow:
    """A running number as a first column."""

    source: Flow
    start: int

    def open(self, at: Context, state: State = None) -> Running:
        inner = self.source.open(at, part(state))
        done = Count.of(state, "n", 0)
        return Running(self._numbered(inner, done), inner, n=done)

    def _numbered(self, inner: Iterator[Element], done: Count) -> Iterator[Element]:
        start = self.start
        for element in inner:
            value, stream, position = element
            if type(value) is not tuple:
                done.n += is_element(element)
                yield element
                continue
            i = done.n
            done.n = i + 1
            yield (np.int64(start + i), *value), stream, position

    def access(self, at: Context) -> RandomAccess:
        return _Enumerated(self, at)


class _Enumerated(Through):
    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        for block in blocks:
            found = self._source.pick(iter([block]))
            numbers = iter((block + self._flow.start).tolist())
            for element in found:
                if not is_element(element):
                    yield element
                    continue
                count = np.int64(next(numbers))
                value, stream, position = element
                yield element if type(value) is Hole else ((count, *value), stream, position)
