"""access: the elements of a flow by index.

`access(flow, at)` gives the number of elements that a flow has in a context, and the elements at any indices, with the
identities that iterating gives them. Nothing is read before an element is asked for, except the headers of record files
that have no index yet.

A flow supports it by a method `access(at)`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from typing import Any

import numpy as np

from ..classes import dataclass
from ..errors import GpupipeError, PlanError
from ..graph.op import Array
from ..plan.index import ENDLESS
from .bad.found import as_it_was, bad_before
from .element import Element, is_element, repeated
from .run import Context, Flow
from .state.snapshot import Counted, State
from .step import Running, close

__all__ = [
    "AsItWas",
    "FromFunction",
    "Joined",
    "Later",
    "Padded",
    "Picked",
    "RandomAccess",
    "Remapped",
    "Through",
    "access",
    "blocks_of",
    "from_list",
    "groups",
    "joined",
    "passes",
    "strided",
    "waits",
    "within",
]

AT_ONCE = 4096
"""Indices that are computed at a time."""


def groups(keys: Array) -> Iterator[tuple[int, Array]]:
    """Each different key of int64[N], ascending, and the indices that have it."""
    rows = np.argsort(keys, kind="stable")
    ordered = keys[rows]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(keys)])
    return zip(ordered[starts].tolist(), np.split(rows, starts[1:]), strict=False)


class RandomAccess:
    """The elements of a flow, opened in one context, by index.

    Attributes:
        size: the number of elements; `ENDLESS` if there is no end.
        parts: the number of elements of each of its files, where it has one file after the other: int64[files].
    """

    size: int
    parts: Array | None = None

    def one(self, index: int) -> Element:
        """The element at an index, 0 <= index < size."""
        found = self.pick(iter([np.array([index])]))
        try:
            for element in found:
                if is_element(element):
                    return element
            raise GpupipeError(f"index {index} of {self.size} has no element; please report it")
        finally:
            close(found)

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        """The elements at the given indices, blocks of int64[N], in that order."""
        return (self.one(index) for block in blocks for index in block.tolist())

    def changed(self) -> Iterator[Element]:
        """What a pass ends with: an error for each file that was read and has changed meanwhile."""
        return iter(())


def access(flow: Flow, at: Context) -> RandomAccess:
    """The elements of a flow in a context, by index. Headers of files without an index are read.

    Raises:
        GpupipeError: the flow has no access by index, which `plan.index.blocker` should have said of its plan.
    """
    opened: Callable[[Context], RandomAccess] | None = getattr(flow, "access", None)
    if opened is None:
        raise GpupipeError(
            f"{type(flow).__name__} needs an access method for elements by index, got none; please report it"
        )
    return opened(at)


def blocks_of(start: int, stop: int, step: int = 1) -> Iterator[Array]:
    """The indices ``range(start, stop, step)`` in blocks of up to `AT_ONCE`."""
    for first in range(start, stop, AT_ONCE * step):
        yield np.arange(first, min(first + AT_ONCE * step, stop), step)


def waits(at: Context, taken: int) -> bool:
    """Whether another element of the input may need a place that has not come yet, see `order.asked`.

    Args:
        at: where the step that asks was opened.
        taken: elements that it has taken since then; errors between elements are none.
    """
    if at.places is not None:
        return bool(at.places.waits_below(taken))
    return any(one.waits() for one in at.run.asked)


class FromFunction(RandomAccess):
    """Elements that a function makes from their indices."""

    def __init__(self, size: int, make: Callable[[int], Element]) -> None:
        self.size = size
        self._make = make

    def one(self, index: int) -> Element:
        return self._make(index)

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        return map(self._make, chain.from_iterable(block.tolist() for block in blocks))


def from_list(elements: Sequence[Element]) -> RandomAccess:
    """The elements of a list."""
    return FromFunction(len(elements), elements.__getitem__)


class AsItWas(RandomAccess):
    """The elements of a source by index, in which what was bad before a loaded state is bad (`as_before`)."""

    def __init__(self, source: RandomAccess, at: Context) -> None:
        self._source = source
        self._run = at.run
        self.size, self.parts = source.size, source.parts

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        places = bad_before(self._run, None)
        picked = self._source.pick(blocks)
        return (as_it_was(element, places, self._run) for element in picked) if places else picked

    def changed(self) -> Iterator[Element]:
        return self._source.changed()


class Remapped(RandomAccess):
    """Elements of another flow at indices that a function computes."""

    def __init__(self, source: RandomAccess, size: int, where: Callable[[Array], Array]) -> None:
        self._source = source
        self._where = where
        self.size = size

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        return self._source.pick(map(self._where, blocks))

    def changed(self) -> Iterator[Element]:
        return self._source.changed()


class Padded(RandomAccess):
    """Elements of another flow at indices that a function computes; what is beyond its end is from its start again.

    Those elements are marked as replacements: `iterator.valid` is False for them.
    """

    def __init__(self, source: RandomAccess, size: int, where: Callable[[Array], Array]) -> None:
        self._source = source
        self._where = where
        self.size = size

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        own: deque[bool] = deque()  # of the elements that were asked for: whether each is one, or from the start again

        def places() -> Iterator[Array]:
            n = self._source.size
            for block in blocks:
                where = self._where(block)
                own.extend((where < n).tolist())
                yield where % n

        for element in self._source.pick(places()):
            if not is_element(element) or own.popleft():
                yield element
            else:
                yield repeated(element)

    def changed(self) -> Iterator[Element]:
        return self._source.changed()


class Later(RandomAccess):
    """Elements whose number is known, of a flow that is made once one of them is asked for."""

    def __init__(self, size: int, make: Callable[[], RandomAccess]) -> None:
        self.size = size
        self._make = make
        self._made: RandomAccess | None = None

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        if self._made is None:
            self._made = self._make()
        return self._made.pick(blocks)

    def changed(self) -> Iterator[Element]:
        return iter(()) if self._made is None else self._made.changed()


def strided(source: RandomAccess, start: int, step: int) -> RandomAccess:
    """Every `step`-th element, from index `start`."""
    if start == 0 and step == 1:
        return source
    n = source.size
    size = max(0, -(-(n - start) // step))
    if n != ENDLESS:
        return Remapped(source, size, lambda indices: start + indices * step)
    return Remapped(source, n, lambda indices: start + within(indices, size) * step)


def within(indices: Array, size: int) -> Array:
    """Indices of a flow without end, of which a step can make the first `size` elements.

    Raises:
        PlanError: one of them is beyond, so its input's elements would have numbers of 2**62 and more.
    """
    most = int(indices.max(initial=0))
    if most >= size:
        raise PlanError(
            f"an infinite dataset has elements up to number 2**62 - 1, of which the steps here make {size}; an element "
            f"needs a number below that, got {most}"
        )
    return indices


class Joined(RandomAccess):
    """Elements of several flows.

    Args:
        size: the number of elements.
        where: maps indices to numbers of parts and indices within them.
        part: opens a part by its number; called once for each.
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
            numbers, indices = self._where(block)
            found: dict[int, Iterator[Element]] = {}
            try:
                for number in np.unique(numbers).tolist():
                    part = self._parts.get(number)
                    if part is None:
                        part = self._parts[number] = self._part(number)
                    found[number] = part.pick(iter([indices[numbers == number]]))
                for number in numbers.tolist():
                    for element in found[number]:
                        yield element
                        if is_element(element):
                            break
            finally:
                for one in found.values():
                    close(one)

    def changed(self) -> Iterator[Element]:
        return chain.from_iterable(part.changed() for part in list(self._parts.values()))


def joined(parts: Sequence[RandomAccess]) -> RandomAccess:
    """The parts one after another."""
    # Behind the first part without end comes no other.
    ends = np.array([0, *(min(end, ENDLESS) for end in accumulate(part.size for part in parts))])
    size = int(ends[-1])

    def where(indices: Array) -> tuple[Array, Array]:
        numbers = np.searchsorted(ends, indices, side="right") - 1
        return numbers, indices - ends[numbers]

    return Joined(size, where, parts.__getitem__)


def passes(numbered: Callable[[int], RandomAccess], count: int) -> RandomAccess:
    """The passes of a repeat, opened by their number; a negative count has no end."""
    first = numbered(0)
    n = first.size
    if n == ENDLESS or count == 1:
        return first if count else from_list([])
    size = 0 if n == 0 or count == 0 else ENDLESS if count < 0 else min(n * count, ENDLESS)
    return Joined(size, lambda indices: (indices // n, indices % n), lambda j: numbered(j) if j else first)


@dataclass(frozen=True, slots=True)
class Picked:
    """Elements at chosen indices as a flow, which takes the place of a step's input."""

    source: RandomAccess
    blocks: Iterator[Array]
    of: Any = None  # the flow in whose place it is, which `depth_of` counts

    def open(self, at: Context, state: State = None) -> Running:
        return Counted(self.source.pick(self.blocks))


class Through(RandomAccess):
    """Access to a step that makes one element of each: runs the step over the chosen elements of its input."""

    def __init__(self, flow: Any, at: Context) -> None:
        self._flow = flow
        self._at = at
        self._source = access(flow.source, at)
        self.size = self._source.size
        self.parts = self._source.parts

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        made: Iterator[Element] = replace(self._flow, source=Picked(self._source, blocks, self._flow.source)).open(
            self._at
        )
        return made

    def changed(self) -> Iterator[Element]:
        return self._source.changed()
