"""memory: elements kept in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from operator import length_hint
from typing import Any

from ...errors import StateError
from ...graph.op import Array
from ...plan.arrival import Arrival
from ...random import mix64
from ..access import Access, Made, access
from ..element import BatchStream, Element, Stream
from ..memory import bytes_of_all
from ..run import REPLAYING, Context, Flow
from ..state.arrivals import Full
from ..state.snapshot import Refused, State, below, number
from ..step import Running
from .fill import Filling, Rekey, stream_in
from .store import CacheStore, Filled, cache_key

__all__ = ["CacheFlow"]


@dataclass(frozen=True, slots=True)
class CacheFlow:
    """The elements of the first full pass, from memory from then on.

    The input is opened neutrally (epoch 0, root key), so the contents depend on seed and identity only; elements are
    re-keyed with the context the cache itself is opened in (see `key_in`), when filling and when replaying alike. What
    is handed out cannot change what is kept: arrays are read-only views, those of batches copies.

    Attributes:
        arrival: how the elements of the input come. Mixed ones are kept in an order that their identities draw, so
            that a cache that is filled anew, by a chain that goes on, gives what this one gave. It is a random order:
            what was shuffled stays so.
    """

    source: Flow
    store: CacheStore
    element: Any
    arrival: Arrival = Arrival.FIXED

    def open(self, at: Context, state: State = None) -> Running:
        if cache_key(at.run.settings) in self.store.filled:
            return FilledFlow(self.store).open(at, state)
        return _Filling(self, at, state)

    def access(self, at: Context) -> Access:
        if cache_key(at.run.settings) in self.store.filled:
            return FilledFlow(self.store).access(at)
        return _Rekeyed(self, at)


@dataclass(frozen=True, slots=True)
class FilledFlow:
    """The elements of a cache that is full."""

    store: CacheStore

    def open(self, at: Context, state: State = None) -> Running:
        done = 0 if state is None else number(state, "n")
        return _Replaying(self.store.filled[cache_key(at.run.settings)], Rekey(at), done)

    def access(self, at: Context) -> Access:
        elements, rekey = self.store.filled[cache_key(at.run.settings)].elements, Rekey(at)
        return Made(len(elements), lambda place: rekey(elements[place]))


class _Replaying(Running):
    """The elements of a full cache, from a place on."""

    def __init__(self, filled: Filled, rekey: Rekey, done: int) -> None:
        self._fixed = filled.fixed
        self._size = len(filled.elements)
        self._kept = iter(filled.elements)
        next(islice(self._kept, done, done), None)
        super().__init__(map(rekey, self._kept))

    def snapshot(self) -> State:
        """How many elements were given."""
        if not self._fixed:
            return Refused(
                "state_dict needs what a memory cache holds, which is no part of a state, and reading its input anew "
                "gives something else: rows of batches or numbers that depend on what was ready first; use "
                "deterministic=True below it, or cache in a file"
            )
        return {"n": self._size - length_hint(self._kept), "source": Full()}


def _drawn(element: Element) -> tuple[int, int, int]:
    _, stream, position = element
    return mix64(stream.key, position), stream.key, position


class _Filling(Filling):
    """A pass that fills the cache in memory."""

    def __init__(self, flow: CacheFlow, at: Context, state: State) -> None:
        self._store = flow.store
        self._key = cache_key(at.run.settings)
        self._element = flow.element
        self._kept: list[Element] | None = [] if below(state) is None else None
        self._arrival = flow.arrival
        self._run = at.run
        self._again: _Replaying | None = None  # of a full cache, which is full again
        at.run.holds(self, "cache()")
        super().__init__(flow.source, at, state)

    def refill(self, given: int, at: Context) -> None:
        """The same; where elements come mixed, all of them tell which come first."""
        if self._arrival is Arrival.FIXED:
            super().refill(given, at)
            return
        before = REPLAYING.get()
        try:
            REPLAYING.set(True)
            deque(self, maxlen=0)
        finally:
            REPLAYING.set(before)
        filled = self._store.filled.get(self._key)
        if filled is None:
            if self._stopped.is_set():
                return
            raise StateError("load_state_dict needs the data that a cache was filled with, got an input that fails")
        self._again = _Replaying(filled, self._rekey, given)

    def __next__(self) -> Element:
        return super().__next__() if self._again is None else next(self._again)

    def snapshot(self) -> State:
        """The same; where the cache is full again, the place in it."""
        return super().snapshot() if self._again is None else self._again.snapshot()

    def held(self) -> tuple[int, int]:
        """Elements of the pass so far, and their bytes."""
        return bytes_of_all(self._kept or ())

    def add(self, element: Element) -> None:
        if self._kept is not None:
            self._kept.append(element)

    def discard(self) -> None:
        self._kept = None

    def finish(self) -> None:
        """Fill the cache; not if the pass ended because somebody stops the run."""
        if self._kept is None or self._stopped.is_set():
            return
        fixed = self._arrival is Arrival.FIXED and self._run.surprise is None
        if self._arrival is Arrival.MIXED:
            self._kept.sort(key=_drawn)
            drawn = list(map(_drawn, self._kept))
            fixed = all(a != b for a, b in pairwise(drawn))  # two of one identity, as overlapping windows have them
        filled = Filled(self._kept, self._element, fixed)
        with self._store.lock:
            self._store.filled.setdefault(self._key, filled)
        self._kept = None


class _Rekeyed(Access):
    """The elements that a cache would hold. It is not filled: only a full pass does that."""

    def __init__(self, flow: CacheFlow, at: Context) -> None:
        self._source = access(flow.source, at.neutral())
        self._at = at
        self.size = self._source.size

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        for value, stream, position in self._source.pick(blocks):
            yield value, self._stream(stream), position

    def _stream(self, stream: Stream) -> Stream:
        if isinstance(stream, BatchStream):
            return BatchStream([(self._stream(row), position) for row, position in stream.rows])
        return stream_in(self._at, stream.key, stream.name, stream.unit)
