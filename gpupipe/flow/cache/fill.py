"""fill: a pass over the input of a cache that keeps what it gives, and the keys that kept elements have."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from ...random import ROOT, mix64
from ...spec import read_only
from ..element import BatchStream, Element, Hole, Raised, Stream, keep
from ..run import Context, Flow
from ..state.snapshot import State, below, drop, number
from ..step import Running

__all__ = ["Filling", "Rekey", "stream_in"]


def stream_in(at: Context, key: int, name: str, unit: str, kind: type[Stream] = Stream) -> Stream:
    """A kept stream in a context.

    What is kept has the keys of the root context. There it keeps them: random ops behind a cache draw what they draw
    without it. In any other (a later pass of `repeat`, a later input of `zip`) elements are others, as without a cache.
    """
    return kind(_key_in(at.key, key), name, unit, _key_in(at.alike, key))


def _key_in(context: int, key: int) -> int:
    return key if context == ROOT else mix64(context, key)


class Rekey:
    """Gives cached elements the keys of the pass they are replayed in."""

    def __init__(self, at: Context) -> None:
        self._at = at
        self._same = at.key == ROOT
        self._streams: dict[int, tuple[Stream, Stream]] = {}  # by id, and what has it: an id is used again

    def __call__(self, element: Element) -> Element:
        value, stream, position = element
        if type(value) is tuple:
            own = _copied if isinstance(stream, BatchStream) else read_only
            value = tuple([own(column) for column in value])
        elif type(value) is Hole:
            value = Hole(value.error, value.known)  # of this pass: it is counted in each of them
        return value, self._stream(stream), position

    def _stream(self, stream: Stream) -> Stream:
        if self._same:
            return stream
        if isinstance(stream, BatchStream):
            return BatchStream([(self._stream(row), position) for row, position in stream.rows])
        found = self._streams.get(id(stream))
        if found is None:
            found = stream, stream_in(self._at, stream.key, stream.name, stream.unit, type(stream))
            self._streams[id(stream)] = found
        return found[1]


def _copied(column: Any) -> Any:
    return column.copy() if type(column) is np.ndarray else column


class Filling(Running):
    """A pass that keeps what it gives; only one that reaches the end counts. One that goes on in the middle is none.

    Args:
        source: the input of the cache. It is opened neutrally, see `CacheFlow`.
        at: where the cache is opened.
        state: what `snapshot` gave.
    """

    def __init__(self, source: Flow, at: Context, state: State) -> None:
        self._stopped = at.run.stopped
        self._rekey = Rekey(at)
        self._given = 0
        place = below(state)
        self._inner = self.source = source.open(at.neutral(), place)
        if state is not None:
            given = number(state, "n")
            if place is None:  # over a cache that was full, and is not now
                self.refill(given, at)
            self._given = given

    def __next__(self) -> Element:
        element = next(self._inner, None)
        if element is None:
            self.finish()
            raise StopIteration
        element = keep(element)
        if type(element[0]) is Raised:
            self.discard()  # a batch was lost on the way: the next pass tries again
        else:
            self.add(element)
        self._given += 1
        return self._rekey(element)

    def refill(self, given: int, at: Context) -> None:
        """Come back to a place in a full cache, and fill it on the way."""
        drop(self, given, at)

    @abstractmethod
    def add(self, element: Element) -> None:
        """Keep an element, if this is a full pass so far."""

    @abstractmethod
    def finish(self) -> None:
        """The pass has reached its end, or its run is being stopped, which ends inputs early."""

    @abstractmethod
    def discard(self) -> None:
        """Forget what was kept: this is no full pass."""

    def own(self) -> dict[str, State]:
        """How many elements were given: what is kept is not part of a state."""
        return {"n": self._given}

    def close(self) -> None:
        """Forget a partial pass."""
        self.discard()
        super().close()
