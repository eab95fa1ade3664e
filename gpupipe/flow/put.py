"""put: batches of the host where those beside them are, on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .base import Context, Element, Flow, Hole
from .elements import Wrapped
from .state import State, snapshot

__all__ = ["PutFlow"]


@dataclass(frozen=True, slots=True)
class PutFlow:
    """Some columns on a GPU, where they are arrays of numbers.

    States do not know it: one that was taken beside a GPU is good on a machine without, where nothing is put.

    Attributes:
        source: gives batches.
        columns: which are put there.
        put: an array of the host to the GPU.
    """

    source: Flow
    columns: Collection[int]
    put: Callable[[Any], Any]

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        inner = self.source.open(at, state)
        return _Put(self._put(inner), inner)

    def _put(self, inner: Iterator[Element]) -> Iterator[Element]:
        for element in inner:
            value, stream, position = element
            if type(value) is Hole:
                yield element
                continue
            columns = [
                self.put(leaf) if i in self.columns and isinstance(leaf, np.ndarray) and leaf.dtype != object else leaf
                for i, leaf in enumerate(value)
            ]
            yield tuple(columns), stream, position


class _Put(Wrapped):
    __slots__ = ()

    def snapshot(self) -> State:
        """The state of the input."""
        return snapshot(self._inner)
