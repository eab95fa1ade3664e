"""to_gpu: columns moved to the GPU, so that a column is on one device whichever input its element came from."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from ...classes import dataclass
from ...transform.array import goes_to_gpu, on_gpu, to_host
from ..element import Element
from ..run import Context, Flow
from ..state.snapshot import State
from ..step import Running, Unseen

__all__ = ["OneKindFlow", "PutFlow"]


@dataclass(frozen=True, slots=True)
class PutFlow:
    """Moves some columns to a GPU where they are arrays of numbers. Scalars stay on the host.

    States do not contain this step: one taken with a GPU can be loaded on a machine without, where nothing is moved.

    Attributes:
        source: gives elements.
        columns: indices of the columns to move.
        put: copies an array from the host to the GPU.
    """

    source: Flow
    columns: Collection[int]
    put: Callable[[Any], Any]

    def open(self, at: Context, state: State = None) -> Running:
        inner = self.source.open(at, state)
        # Not a generator: an exception from the input would end it.
        return Unseen(map(partial(_moved, self._mover(at)), inner), inner)

    def _mover(self, at: Context) -> Callable[[int, Any], Any]:
        """Return a function that moves a leaf of a column, given its index, to where it belongs."""
        return lambda i, leaf: self.put(leaf) if i in self.columns and goes_to_gpu(leaf) else leaf


@dataclass(frozen=True, slots=True)
class OneKindFlow(PutFlow):
    """Moves every column to where its first array was, for datasets made at run time, whose device is unknown before.

    The `columns` are on the GPU whatever comes first. This is the last step of a chain; all epochs of a run agree.
    """

    def _mover(self, at: Context) -> Callable[[int, Any], Any]:
        there = at.run.on_gpu
        there.update(dict.fromkeys(self.columns, True))

        def move(i: int, leaf: Any) -> Any:
            if goes_to_gpu(leaf):
                return self.put(leaf) if there.setdefault(i, False) else leaf
            return to_host(leaf) if on_gpu(leaf) and not there.setdefault(i, True) else leaf

        return move


def _moved(move: Callable[[int, Any], Any], element: Element) -> Element:
    value, stream, position = element
    if type(value) is not tuple:
        return element
    return tuple(move(i, leaf) for i, leaf in enumerate(value)), stream, position
