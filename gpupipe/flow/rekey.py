"""rekey: new keys for cached elements in each pass, and copies that the user may change."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import Unit
from ..random import ROOT, mix64
from ..spec import read_only
from .bad.found import found
from .element import BatchStream, Element, Hole, Stream
from .run import Context

__all__ = ["Rekey", "stream_in"]

MOST = 1 << 12
"""Streams of the cache that are remembered with those of the pass."""


def stream_in(at: Context, key: int, name: str, unit: Unit, kind: type[Stream] = Stream) -> Stream:
    """The stream of a cached element in a context.

    Cached elements have the keys of the root context. There they keep them: random ops after a cache draw what they
    draw without it. In any other context (a later pass of `repeat`, a later input of `zip`) keys differ, as without a
    cache.
    """
    return at.keyed(lambda context: key if context == ROOT else mix64(context, key), name, unit, kind)


class Rekey:
    """Gives cached elements the keys of the present pass. A user who changes an element does not change the cache.

    Args:
        at: the context of the pass.
        base: the key of a context in which elements keep their keys, in addition to the root.
    """

    def __init__(self, at: Context, base: int = ROOT) -> None:
        self._at = at
        self._same = at.drawing.key in (base, ROOT)
        self._streams: dict[
            int, tuple[Stream, Stream]
        ] = {}  # by id, with the stream itself: an id is used again once its object is gone

    def __call__(self, element: Element) -> Element:
        value, stream, position = element
        if type(value) is tuple:
            own = copied if isinstance(stream, BatchStream) else read_only
            value = tuple([own(column) for column in value])
        elif type(value) is Hole:
            value = Hole(value.error, value.known)  # a new one for each pass: it is counted in each of them
            stream = self.stream(stream)
            found(value, stream, position)
            return value, stream, position
        return value, self.stream(stream), position

    def stream(self, stream: Stream) -> Stream:
        """The stream of a cached element in this pass."""
        if self._same and stream.scope == self._at.scope:
            return stream
        if isinstance(stream, BatchStream):
            return BatchStream([self.stream(row) for row in stream.streams], stream.positions)
        found = self._streams.get(id(stream))
        if found is None:
            if len(self._streams) >= MOST:  # where each element has one
                self._streams.clear()
            found = stream, stream_in(self._at, stream.key, stream.name, stream.unit, type(stream))
            self._streams[id(stream)] = found
        return found[1]


def copied(column: Any) -> Any:
    """A copy of a batch's array, which the user may change."""
    return column.copy() if type(column) is np.ndarray else column
