"""select_by_index: the elements at the indices of an order: a slice, a full shuffle, a part, a share, named places."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ...classes import dataclass
from ...errors import GpupipeError, PlanError
from ...graph.op import Array
from ...plan.index import ENDLESS, Asked, Everything, Order, Part, Places, Rows, Share, Sliced
from ...plan.places import RedrawnPlaces
from ...random import hash64, mix64
from ..access import Joined, Padded, RandomAccess, Remapped, access, blocks_of
from ..element import Element, Raised
from ..run import Context, Flow
from ..state.snapshot import State, fast_forward, int_part
from ..step import Running, close
from .permutation import Permutation
from .streams import StreamOrder

__all__ = ["ByIndex", "SelectFlow", "selected"]


@dataclass(frozen=True, slots=True)
class SelectFlow:
    """The elements of the input at the indices of an order."""

    source: Flow
    order: Order

    def open(self, at: Context, state: State = None) -> Running:
        return ByIndex(lambda given: selected(self, at, given, 1), at, state)

    def access(self, at: Context) -> RandomAccess:
        source = access(self.source, at)
        n = source.size
        of_batches = self.order.order if isinstance(self.order, Rows) else self.order
        if n == ENDLESS and not isinstance(of_batches, Sliced | Places | Share):
            raise PlanError(f"{self.order.describe()} needs a dataset that ends, got an infinite one")
        if isinstance(self.order, Share) and self.order.pad:
            return Padded(source, self.order.size(n), self.order.where)
        size, where = self.order.size(n), _indices(self.order, n, at, source.parts)
        if not isinstance(of_batches, RedrawnPlaces):
            return Remapped(source, size, where)
        visits, rows = of_batches.visits, self.order.rows if isinstance(self.order, Rows) else 1
        return visited(self.source, at, size, lambda indices: (visits[indices // rows], where(indices)))


def visited(source: Flow, at: Context, size: int, where: Callable[[Array], tuple[Array, Array]]) -> Joined:
    """Elements whose indices come again: on each further visit with the keys of another pass of a repeat.

    Args:
        source: the input.
        at: where it is opened.
        size: the number of elements.
        where: maps indices to numbers of visits, and indices in the input.
    """
    return Joined(size, where, lambda visit: access(source, at.in_visit(visit)))


class ByIndex(Running):
    """Elements that can start anywhere. The state is how many were given, and how many errors after the last one.

    Args:
        start: takes a number of elements, and returns those after them.
        at: where they are opened.
        state: to resume from.
    """

    def __init__(self, start: Callable[[int], Iterator[Element]], at: Context, state: State) -> None:
        self._given = 0 if state is None else int_part(state, "n")
        self._errors = 0
        self._inner = start(self._given)
        self.items = self._counted()
        if state is not None:
            fast_forward(self.items, int_part(state, "errors"), at)

    def _counted(self) -> Iterator[Element]:
        for element in self._inner:
            if type(element[0]) is not Raised:
                self._given += 1
                self._errors = 0
            else:
                self._errors += 1
            yield element

    def snapshot(self) -> State:
        """How many elements were given, and how many errors since."""
        return {"n": self._given, "errors": self._errors}

    def close(self) -> None:
        close(self._inner)


def selected(flow: SelectFlow, at: Context, start: int, step: int) -> Iterator[Element]:
    """Every `step`-th element of the order, from index `start`. Nothing is read before the first is asked for."""
    chosen = access(flow, at)
    found = chosen.pick(blocks_of(start, chosen.size, step))
    stopped = at.run.stopped
    try:
        for element in found:
            yield element
            if stopped.on:
                return
    finally:
        close(found)
    yield from chosen.changed()


def _indices(order: Order, n: int, at: Context, parts: Array | None = None) -> Callable[[Array], Array]:
    """The map from indices in an order to indices in its input, which has `n` elements in parts of known sizes.

    Raises:
        GpupipeError: the indices are asked for while the chain runs, see `asked`.
    """
    match order:
        case Asked():
            raise GpupipeError(f"{order.describe()} has no indices before they come; please report it")
        case Sliced(start=start, step=step):
            return lambda indices: start + indices * step
        case Everything(seed=seed, reshuffle=reshuffle, streams=streams, window=window):
            own, epoch, key = at.draws(seed, reshuffle)
            drawn = mix64(mix64(own, epoch), key)
            if not streams:
                return Permutation(n, mix64(drawn, hash64("shuffle all")))
            if parts is None:  # runs of neighbours stand in for files
                parts = np.diff([*range(0, n, window), n])
            return StreamOrder(parts, streams, window, mix64(drawn, hash64("shuffle streams")))
        case Places(indices=chosen):
            return lambda indices: chosen[indices]
        case Share():
            return order.where
        case Part(seed=seed, part=part):
            before = sum(order.sizes(n)[:part])
            whole = Permutation(n, mix64(seed & (1 << 64) - 1, hash64("split")))
            return lambda indices: whole(before + indices)
        case Rows(order=batches, rows=rows, drop=drop):
            of_batches = _indices(batches, n // rows if drop else -(-n // rows), at)
            return lambda indices: of_batches(indices // rows) * rows + indices % rows
