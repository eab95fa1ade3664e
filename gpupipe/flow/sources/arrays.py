"""arrays: sources over data in memory: arrays, ranges, lists of files, indexable objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from typing import Any

import numpy as np

from ...classes import dataclass
from ...errors import StateError
from ...extract.storage.names import Names
from ...graph.op import Array
from ...random import mix64_array
from ..access import RandomAccess, access, blocks_of, from_list
from ..element import Element, Stream, visited
from ..run import Context, Flow
from ..state.snapshot import Counted, Numbered, State, int_part, replayed
from ..step import Running

__all__ = ["FilesFlow", "IndexedSource", "ParamFlow", "RangeFlow", "SlicesFlow", "indexed"]

_BLOCK = 1024


class IndexedSource(RandomAccess):
    """A source in one context, by index. A buffer holds an index instead of the element.

    Attributes:
        make: makes the elements at the given indices, many at a time.
    """

    def __init__(self, size: int, make: Callable[[list[int]], Iterator[Element]]) -> None:
        self.size = size
        self.make = make

    def one(self, index: int) -> Element:
        return next(self.make([index]))

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        return chain.from_iterable(self.make(block.tolist()) for block in blocks)


def indexed(flow: Flow, at: Context) -> IndexedSource:
    """A flow of this file in a context, by index; not one of whole arrays."""
    found = access(flow, at)
    assert isinstance(found, IndexedSource), type(flow)
    return found


@dataclass(frozen=True, slots=True)
class RangeFlow:
    """The numbers of a range, made in blocks: a scalar takes 16 ns from an array, 160 ns from a Python integer."""

    numbers: range
    dtype: np.dtype[Any]

    def open(self, at: Context, state: State = None) -> Running:
        stream = at.stream("range", "range")
        done = 0 if state is None else int_part(state, "n")
        blocks = (self.numbers[start : start + _BLOCK] for start in range(done, len(self.numbers), _BLOCK))
        block = self._array if self._fits(self.numbers) else self._block
        scalars = chain.from_iterable(map(block, blocks))
        return Numbered(zip(scalars), stream, done)

    def access(self, at: Context) -> IndexedSource:
        numbers, kind = self.numbers, self.dtype.type
        stream = at.stream("range", "range")
        fits = self._fits(numbers)

        def make(indices: list[int]) -> Iterator[Element]:
            if not fits:
                return zip(zip(kind(numbers[i]) for i in indices), repeat(stream), indices)
            chosen = np.array(indices, np.int64) * numbers.step + numbers.start
            return zip(zip(chosen.astype(kind, copy=False)), repeat(stream), indices)

        return IndexedSource(len(numbers), make)

    def _block(self, numbers: range) -> Iterable[Any]:
        """Some of the numbers as scalars, one by one if they may not fit: the error is raised at that number."""
        return self._array(numbers) if self._fits(numbers) else map(self.dtype.type, numbers)

    def _array(self, numbers: range) -> Array:
        block: Array = np.arange(numbers.start, numbers.stop, numbers.step, dtype=np.int64)
        return block.astype(self.dtype, copy=False)

    def _fits(self, numbers: range) -> bool:
        """Whether an int64 array can hold the numbers, and casting it rounds as casting each of them does."""
        kind = self.dtype.type
        if kind in (np.float32, np.float64):
            low, high = (
                -(2**53),
                2**53,
            )  # a double holds every integer up to here; beyond, two roundings differ from one
        elif self.dtype.kind != "f":
            low, high = max(np.iinfo(kind).min, -(2**63)), min(np.iinfo(kind).max, 2**63 - 1)
        else:
            return False
        whole = all(-(2**63) <= n < 2**63 for n in (numbers.start, numbers.stop, numbers.step))
        return whole and all(low <= end <= high for end in (*numbers[:1], *numbers[-1:]))


@dataclass(frozen=True, slots=True)
class SlicesFlow:
    """The rows of arrays.

    Attributes:
        leaves: the arrays.
        whole: whether the arrays themselves are the one element.
        names: of the elements, which are paths: a name and the number of times that it came before identify an element.
            So a Python slice of the list, or another directory, changes no augmentation. None identifies by index.
    """

    leaves: tuple[Any, ...]
    whole: bool = False
    names: Names | None = None

    def open(self, at: Context, state: State = None) -> Running:
        stream = at.stream("slices", "from_tensor_slices")
        if self.whole:
            return replayed(lambda: iter([(self.leaves, stream, 0)]), at, state)
        if self.names is not None:
            return listed(self._indexed(at), state)
        rows = zip(*self.leaves, strict=True)
        done = 0 if state is None else int_part(state, "n")
        return Numbered(islice(rows, done, None) if done else rows, stream, done)

    def access(self, at: Context) -> RandomAccess:
        return from_list(list(self.open(at))) if self.whole else self._indexed(at)

    def _indexed(self, at: Context) -> IndexedSource:
        leaves, names = self.leaves, self.names

        def rows(indices: list[int]) -> Iterator[tuple[Any, ...]]:
            return zip(*chosen(leaves, indices), strict=True)

        if names is None:
            stream = at.stream("slices", "from_tensor_slices")
            return IndexedSource(len(leaves[0]), lambda indices: zip(rows(indices), repeat(stream), indices))

        def named(indices: list[int]) -> Iterator[Element]:
            shown = [leaves[0][i].decode(errors="surrogateescape") for i in indices]
            return zip(rows(indices), named_streams(at, names, indices, shown), repeat(0))

        return IndexedSource(len(names), named)


def chosen(leaves: Sequence[Any], indices: list[int]) -> list[Iterable[Any]]:
    """Rows of every leaf, as iterating over it gives them: numbers by one lookup, rows of arrays as views."""
    where = np.array(indices, np.int64)
    return [
        leaf[where] if type(leaf) is np.ndarray and leaf.ndim == 1 else [leaf[i] for i in indices] for leaf in leaves
    ]


def named_streams(at: Context, names: Names, indices: list[int], shown: Sequence[str]) -> Iterator[Stream]:
    """The streams of listed files, keyed by name and by the number of times that the name was listed before."""
    where, names = np.array(indices, np.int64), names.without(at.run.settings.signing_parameters)
    hashes, before = names.hashes(where), names.before(where)

    def keys(start: int) -> list[int]:
        found: list[int] = mix64_array(mix64_array(np.full(len(indices), start, np.uint64), hashes), before).tolist()
        return found

    units: Any = repeat("index")  # as a repeat[str] it would not fit `Unit`

    def streams(place: Context) -> Iterator[Stream]:
        mine = keys(place.key)
        alike = mine if place.alike == place.key else keys(place.alike)
        return map(Stream, mine, shown, units, alike, repeat(at.scope))

    found = streams(at.drawing)
    return found if at.drawn is None else map(visited, found, streams(at))


def listed(indexed: RandomAccess, state: State) -> Running:
    """Open a list of files, from the start or from a state.

    Raises:
        StateError: the list is shorter than the state says.
    """
    done = 0 if state is None else int_part(state, "n")
    if done > indexed.size:
        raise StateError(
            f"load_state_dict needs the data that the state was taken over, got an input that ends "
            f"{done - indexed.size} elements before it"
        )
    return Counted(indexed.pick(blocks_of(done, indexed.size)), done=done)


@dataclass(frozen=True, slots=True)
class FilesFlow:
    """File names, identified by their stable names (`Names`)."""

    paths: tuple[str, ...]
    names: Names

    def open(self, at: Context, state: State = None) -> Running:
        return listed(self.access(at), state)

    def access(self, at: Context) -> IndexedSource:
        paths, names = self.paths, self.names

        def make(indices: list[int]) -> Iterator[Element]:
            shown = [paths[i] for i in indices]
            columns = zip([path.encode(errors="surrogateescape") for path in shown])
            return zip(columns, named_streams(at, names, indices, shown), repeat(0))

        return IndexedSource(len(paths), make)


@dataclass(frozen=True, slots=True)
class ParamFlow:
    """The outer element of an inner dataset, as its only element."""

    def open(self, at: Context, state: State = None) -> Running:
        stream = at.keyed(int, "element")
        return replayed(lambda: iter([(at.params[-1], stream, 0)]), at, state)

    def access(self, at: Context) -> RandomAccess:
        return from_list(list(self.open(at)))


@dataclass(frozen=True, slots=True)
class ItemsFlow:
    """The indices of the items of an object, for `from_indexable`."""

    count: int

    def open(self, at: Context, state: State = None) -> Running:
        done = 0 if state is None else int_part(state, "n")
        return Numbered(zip(range(done, self.count)), at.stream("indexable", "from_indexable"), done)

    def access(self, at: Context) -> RandomAccess:
        stream = at.stream("indexable", "from_indexable")
        return IndexedSource(self.count, lambda indices: zip(zip(indices), repeat(stream), indices))
