"""arrays: elements of arrays, ranges, lists of files and objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any

import numpy as np

from ...errors import StateError
from ...extract.storage.names import Names
from ...graph.op import Array
from ...random import mix64_array
from ..access import FromFunction, RandomAccess, from_list
from ..element import Element, Stream
from ..run import Context
from ..state.snapshot import Counted, Numbered, State, int_part, replayed
from ..state.snapshot import int_part as number_of
from ..step import Running

__all__ = ["FilesFlow", "IndexedSource", "ParamFlow", "RangeFlow", "SlicesFlow"]

_BLOCK = 1024


class IndexedSource(RandomAccess):
    """What a source holds, in one context, by index: its number is enough to keep an element.

    Attributes:
        make: the elements at some places, many at a time.
    """

    def __init__(self, size: int, make: Callable[[list[int]], Iterator[Element]]) -> None:
        self.size = size
        self.make = make

    def one(self, place: int) -> Element:
        return next(self.make([place]))

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        return chain.from_iterable(self.make(block.tolist()) for block in blocks)

    def since(self, done: int) -> Iterator[Element]:
        """The elements from a place on, in their order."""
        starts = range(done, self.size, _BLOCK)
        return chain.from_iterable(self.make(list(range(start, min(start + _BLOCK, self.size)))) for start in starts)


@dataclass(frozen=True, slots=True)
class RangeFlow:
    """Numbers, made in blocks: an array that is iterated gives a scalar in 16 ns, a Python integer one in 160."""

    numbers: range
    dtype: np.dtype[Any]

    def open(self, at: Context, state: State = None) -> Running:
        stream = at.stream("range", "range")
        done = 0 if state is None else int_part(state, "n")
        starts = range(done, len(self.numbers), _BLOCK)
        scalars = chain.from_iterable(self._block(self.numbers[start : start + _BLOCK]) for start in starts)
        return Numbered(zip(scalars), stream, done)

    def access(self, at: Context) -> IndexedSource:
        numbers, kind = self.numbers, self.dtype.type
        stream = at.stream("range", "range")
        fits = self._fits(numbers)

        def make(places: list[int]) -> Iterator[Element]:
            if not fits:
                return zip(zip(kind(numbers[i]) for i in places), repeat(stream), places)
            chosen = np.array(places, np.int64) * numbers.step + numbers.start
            return zip(zip(chosen.astype(kind, copy=False)), repeat(stream), places)

        return IndexedSource(len(numbers), make)

    def _block(self, numbers: range) -> Iterable[Any]:
        """Some of the numbers as scalars, one by one where they may not fit: the error comes where the number is."""
        kind = self.dtype.type
        if not self._fits(numbers):
            return map(kind, numbers)
        block: Array = np.arange(numbers.start, numbers.stop, numbers.step, dtype=np.int64)
        return block.astype(kind, copy=False)

    def _fits(self, numbers: range) -> bool:
        """Whether an array of integers holds some of the numbers, and casting it rounds as casting each does."""
        kind = self.dtype.type
        if kind in (np.float32, np.float64):
            low, high = -(2**53), 2**53  # where a double holds every integer: beyond, two roundings are not one
        elif self.dtype.kind != "f":
            low, high = max(np.iinfo(kind).min, -(2**63)), min(np.iinfo(kind).max, 2**63 - 1)
        else:
            return False
        whole = all(-(2**63) <= n < 2**63 for n in (numbers.start, numbers.stop, numbers.step))
        return whole and all(low <= end <= high for end in (*numbers[:1], *numbers[-1:]))


@dataclass(frozen=True, slots=True)
class SlicesFlow:
    """Slices of arrays.

    Attributes:
        leaves: the arrays.
        whole: give the arrays themselves as one element.
        names: identify the elements by these (they are paths) and by how often a name came before; so a Python slice of
            the list, or another directory, changes no augmentation. None identifies them by index.
    """

    leaves: tuple[Any, ...]
    whole: bool = False
    names: Names | None = None

    def open(self, at: Context, state: State = None) -> Running:
        stream = at.stream("slices", "from_tensor_slices")
        if self.whole:
            return replayed(lambda: iter([(self.leaves, stream, 0)]), at, state)
        if self.names is not None:
            return listed(self._placed(at), state)
        rows = zip(*self.leaves, strict=True)
        done = 0 if state is None else int_part(state, "n")
        return Numbered(islice(rows, done, None) if done else rows, stream, done)

    def access(self, at: Context) -> RandomAccess:
        return from_list(list(self.open(at))) if self.whole else self._placed(at)

    def _placed(self, at: Context) -> IndexedSource:
        leaves, names = self.leaves, self.names

        def rows(places: list[int]) -> Iterator[tuple[Any, ...]]:
            return zip(*chosen(leaves, places), strict=True)

        if names is None:
            stream = at.stream("slices", "from_tensor_slices")
            return IndexedSource(len(leaves[0]), lambda places: zip(rows(places), repeat(stream), places))

        def named(places: list[int]) -> Iterator[Element]:
            shown = [leaves[0][i].decode(errors="surrogateescape") for i in places]
            return zip(rows(places), named_streams(at, names, places, shown), repeat(0))

        return IndexedSource(len(names), named)


def chosen(leaves: Sequence[Any], places: list[int]) -> list[Iterable[Any]]:
    """Some of the rows of every leaf, as iterating over it gives them: numbers at once, those of arrays as views."""
    where = np.array(places, np.int64)
    return [
        leaf[where] if type(leaf) is np.ndarray and leaf.ndim == 1 else [leaf[i] for i in places] for leaf in leaves
    ]


def named_streams(at: Context, names: Names, places: list[int], shown: Sequence[str]) -> Iterator[Stream]:
    """The streams of some listed files: each keyed by its name and by how often that name was listed before."""
    where = np.array(places, np.int64)
    hashes, before = names.hashes(where), names.before(where)

    def keys(start: int) -> list[int]:
        found: list[int] = mix64_array(mix64_array(np.full(len(places), start, np.uint64), hashes), before).tolist()
        return found

    if at.alike == at.key:
        return map(Stream, keys(at.key), shown)
    return map(Stream, keys(at.key), shown, repeat("index"), keys(at.alike))


def listed(placed: IndexedSource, state: State) -> Running:
    """What a list of files gives, from a place on.

    Raises:
        StateError: it is shorter.
    """
    done = 0 if state is None else int_part(state, "n")
    if done > placed.size:
        raise StateError(
            f"load_state_dict needs the data that the state was taken over: the input ends {done - placed.size} "
            f"elements before it"
        )
    return Counted(placed.since(done), done=done)


@dataclass(frozen=True, slots=True)
class FilesFlow:
    """File names, identified by their stable names."""

    paths: tuple[str, ...]
    names: Names

    def open(self, at: Context, state: State = None) -> Running:
        return listed(self.access(at), state)

    def access(self, at: Context) -> IndexedSource:
        paths, names = self.paths, self.names

        def make(places: list[int]) -> Iterator[Element]:
            shown = [paths[i] for i in places]
            columns = zip([path.encode(errors="surrogateescape") for path in shown])
            return zip(columns, named_streams(at, names, places, shown), repeat(0))

        return IndexedSource(len(paths), make)


@dataclass(frozen=True, slots=True)
class ParamFlow:
    """The one outer element of an inner dataset."""

    def open(self, at: Context, state: State = None) -> Running:
        return replayed(lambda: iter([(at.params[-1], Stream(at.key, "element", alike=at.alike), 0)]), at, state)

    def access(self, at: Context) -> RandomAccess:
        return from_list(list(self.open(at)))


@dataclass(frozen=True, slots=True)
class ItemsFlow:
    """The numbers of the items of an object: what `from_indexable` asks it for."""

    count: int

    def open(self, at: Context, state: State = None) -> Running:
        return self.chosen(at, range(self.count), state)

    def chosen(self, at: Context, places: range, state: State = None) -> Running:
        """The elements at some places."""
        stream = at.stream("indexable", "from_indexable")
        done = 0 if state is None else number_of(state, "n")
        return Counted((((i,), stream, i) for i in places[done:]), done=done)

    def access(self, at: Context) -> RandomAccess:
        stream = at.stream("indexable", "from_indexable")
        return FromFunction(self.count, lambda i: ((i,), stream, i))
