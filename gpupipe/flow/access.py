"""access: the elements of a flow by their places.

`access(flow, at)` looks at a flow from the side: how many elements it has in a context, and the elements at any places,
with the identities that iterating gives them. Nothing is read before an element is asked for, but for the headers of
record files that have no index yet.

A flow that has them says so by a method `access(at)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from ..errors import GpupipeError, StateError
from ..graph.op import Array
from ..plan.index import ENDLESS
from .element import Element, is_element
from .run import Context, Flow
from .state.snapshot import Counted, State
from .step import Running, close

__all__ = [
    "FromFunction",
    "Joined",
    "Picked",
    "RandomAccess",
    "Remapped",
    "Through",
    "access",
    "blocks_of",
    "from_list",
    "joined",
    "passes",
    "strided",
]

AT_ONCE = 4096
"""Places that are worked out at a time."""


class RandomAccess:
    """The elements of a flow, opened in one context, by their places.

    Attributes:
        size: how many there are; `ENDLESS` for ever.
    """

    size: int

    def one(self, place: int) -> Element:
        """The element at a place, 0 <= place < size."""
        found = self.pick(iter([np.array([place])]))
        try:
            for element in found:
                if is_element(element):
                    return element
            raise GpupipeError(f"place {place} of {self.size} has no element; please report it")
        finally:
            close(found)

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        """The elements at some places, int64[N] at a time, in their order."""
        return (self.one(place) for block in blocks for place in block.tolist())


def access(flow: Flow, at: Context) -> RandomAccess:
    """The elements of a flow in a context by their places; headers of files without an index are read.

    Raises:
        GpupipeError: the flow has no places; `plan.index.blocker` says so of its plan.
    """
    opened: Callable[[Context], RandomAccess] | None = getattr(flow, "access", None)
    if opened is None:
        raise GpupipeError(f"{type(flow).__name__} gives no elements by place; please report it")
    return opened(at)


def blocks_of(start: int, stop: int, step: int = 1) -> Iterator[Array]:
    """The places from `start` to `stop`, some thousand at a time."""
    for first in range(start, stop, AT_ONCE * step):
        yield np.arange(first, min(first + AT_ONCE * step, stop), step)


class FromFunction(RandomAccess):
    """Elements that a function makes of their places."""

    def __init__(self, size: int, make: Callable[[int], Element]) -> None:
        self.size = size
        self._make = make

    def one(self, place: int) -> Element:
        return self._make(place)

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        return map(self._make, chain.from_iterable(block.tolist() for block in blocks))


def from_list(elements: Sequence[Element]) -> RandomAccess:
    """Elements that are there."""
    return FromFunction(len(elements), elements.__getitem__)


class Remapped(RandomAccess):
    """Some of the places of another flow."""

    def __init__(self, source: RandomAccess, size: int, where: Callable[[Array], Array]) -> None:
        self._source = source
        self._where = where
        self.size = size

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        return self._source.pick(map(self._where, blocks))


def strided(source: RandomAccess, start: int, step: int) -> RandomAccess:
    """Every `step`-th element from `start` on."""
    n = source.size
    size = n if n == ENDLESS else max(0, -(-(n - start) // step))
    return Remapped(source, size, lambda places: start + places * step)


class Joined(RandomAccess):
    """Elements of several flows.

    Args:
        size: how many there are.
        where: from places to the number of a part and the place in it.
        part: gives a part by its number; asked once.
    """

    def __init__(
        self, size: int, where: Callable[[Array], tuple[Array, Array]], part: Callable[[int], RandomAccess]
    ) -> None:
        self.size = size
        self._where = where
        self._part = part
        self._parts: dict[int, RandomAccess] = {}

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        for block in blocks:
            numbers, places = self._where(block)
            found: dict[int, Iterator[Element]] = {}
            try:
                for number in np.unique(numbers).tolist():
                    part = self._parts.get(number)
                    if part is None:
                        part = self._parts[number] = self._part(number)
                    found[number] = part.pick(iter([places[numbers == number]]))
                for number in numbers.tolist():
                    for element in found[number]:
                        yield element
                        if is_element(element):
                            break
            finally:
                for one in found.values():
                    close(one)


def joined(parts: Sequence[RandomAccess]) -> RandomAccess:
    """One part after the other."""
    ends = np.cumsum([0, *(min(part.size, ENDLESS >> 20) for part in parts)])
    size = ENDLESS if any(part.size == ENDLESS for part in parts) else int(ends[-1])

    def where(places: Array) -> tuple[Array, Array]:
        numbers = np.searchsorted(ends, places, side="right") - 1
        return numbers, places - ends[numbers]

    return Joined(size, where, parts.__getitem__)


def passes(numbered: Callable[[int], RandomAccess], count: int) -> RandomAccess:
    """The passes of a repeat, by their number there; a negative count has no end."""
    first = numbered(0)
    n = first.size
    if n == ENDLESS or count == 1:
        return first if count else from_list([])
    size = 0 if n == 0 or count == 0 else ENDLESS if count < 0 else min(n * count, ENDLESS)
    return Joined(size, lambda places: (places // n, places % n), lambda j: numbered(j) if j else first)


@dataclass(frozen=True, slots=True)
class Picked:
    """Chosen elements as a flow: what a step runs over in place of its input."""

    source: RandomAccess
    blocks: Iterator[Array]

    def open(self, at: Context, state: State = None) -> Running:
        if state is not None:
            raise StateError("places that were chosen have no state of their own; please report it")
        return Counted(self.source.pick(self.blocks))


class Through(RandomAccess):
    """A step that makes one element of each."""

    def __init__(self, flow: Any, at: Context) -> None:
        self._flow = flow
        self._at = at
        self._source = access(flow.source, at)
        self.size = self._source.size

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        made: Iterator[Element] = replace(self._flow, source=Picked(self._source, blocks)).open(self._at)
        return made
