"""rekey: the keys of elements that are kept, and what is handed out of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..random import ROOT, mix64
from ..spec import read_only
from .element import BatchStream, Element, Hole, Stream
from .run import Context

__all__ = ["Rekey", "stream_in"]


def stream_in(at: Context, key: int, name: str, unit: str, kind: type[Stream] = Stream) -> Stream:
    """A kept stream in a context.

    What is kept has the keys of the root context. There it keeps them: random ops behind a cache draw what they draw
    without it. In any other (a later pass of `repeat`, a later input of `zip`) elements are others, as without a cache.
    """
    return kind(_key_in(at.key, key), name, unit, _key_in(at.alike, key))


def _key_in(context: int, key: int) -> int:
    return key if context == ROOT else mix64(context, key)


class Rekey:
    """Gives kept elements the keys of the pass that they are given in. What is handed out cannot change what is kept.

    Args:
        at: the context of that pass.
        base: the key of a context in which elements keep their keys, beside the root.
    """

    def __init__(self, at: Context, base: int = ROOT) -> None:
        self._at = at
        self._same = at.key in (base, ROOT)
        self._streams: dict[int, tuple[Stream, Stream]] = {}  # by id, and what has it: an id is used again

    def __call__(self, element: Element) -> Element:
        value, stream, position = element
        if type(value) is tuple:
            own = copied if isinstance(stream, BatchStream) else read_only
            value = tuple([own(column) for column in value])
        elif type(value) is Hole:
            value = Hole(value.error, value.known)  # of this pass: it is counted in each of them
        return value, self.stream(stream), position

    def stream(self, stream: Stream) -> Stream:
        """A kept stream in this pass."""
        if self._same:
            return stream
        if isinstance(stream, BatchStream):
            return BatchStream([(self.stream(row), position) for row, position in stream.rows])
        found = self._streams.get(id(stream))
        if found is None:
            found = stream, stream_in(self._at, stream.key, stream.name, stream.unit, type(stream))
            self._streams[id(stream)] = found
        return found[1]


def copied(column: Any) -> Any:
    """A batch's array as one that the user may change."""
    return column.copy() if type(column) is np.ndarray else column
