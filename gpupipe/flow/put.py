"""put: a column of a stream is on a GPU or on the host, whichever of its inputs or datasets an element comes from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..transform.array import goes_to_gpu, on_gpu, to_host
from .base import Context, Element, Flow, Hole
from .elements import Wrapped
from .state import State, snapshot

__all__ = ["OneKindFlow", "PutFlow"]


@dataclass(frozen=True, slots=True)
class PutFlow:
    """Some columns on a GPU, where they are arrays of numbers. Numbers without axes stay numbers.

    States do not know it: one that was taken beside a GPU is good on a machine without, where nothing is put.

    Attributes:
        source: gives elements.
        columns: which are put there.
        put: an array of the host to the GPU.
    """

    source: Flow
    columns: Collection[int]
    put: Callable[[Any], Any]

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        inner = self.source.open(at, state)
        return _Put(map(self._put, inner), inner)  # no generator, which an error from below would end

    def _put(self, element: Element) -> Element:
        value, stream, position = element
        if type(value) is Hole:
            return element
        columns = [self.put(leaf) if i in self.columns and goes_to_gpu(leaf) else leaf for i, leaf in enumerate(value)]
        return tuple(columns), stream, position


@dataclass(frozen=True, slots=True)
class OneKindFlow:
    """Every column where its first array is: for datasets made while running, of which nobody knows before.

    States do not know it either.

    Attributes:
        source: gives elements.
        columns: which are on the GPU whatever comes first.
        put: an array of the host to the GPU.
    """

    source: Flow
    columns: Collection[int]
    put: Callable[[Any], Any]

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        inner = self.source.open(at, state)
        return _Put(map(partial(self._alike, dict.fromkeys(self.columns, True)), inner), inner)

    def _alike(self, there: dict[int, bool], element: Element) -> Element:
        value, stream, position = element
        if type(value) is Hole:
            return element
        columns = list(value)
        for i, leaf in enumerate(columns):
            if goes_to_gpu(leaf):
                if there.setdefault(i, False):
                    columns[i] = self.put(leaf)
            elif on_gpu(leaf) and not there.setdefault(i, True):
                columns[i] = to_host(leaf)
        return tuple(columns), stream, position


class _Put(Wrapped):
    __slots__ = ()

    def snapshot(self) -> State:
        """The state of the input."""
        return snapshot(self._inner)
