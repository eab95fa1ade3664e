"""element: what goes through a chain: columns, with the stream and the position that they come from; and holes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import DataError
from ..graph.op import Array
from ..random import mix64_array

__all__ = [
    "BatchStream",
    "Element",
    "Hole",
    "Raised",
    "Replacement",
    "Stream",
    "element_keys",
    "hole_of",
    "identity_of",
    "is_element",
    "is_replacement",
    "keep",
    "locate",
    "replaced",
]


class Stream:
    """One opened source: a file, an array, a generator. Its key and a position are the identity of an element.

    Attributes:
        key: mixes in the place where it was opened.
        name: for people.
        unit: of positions.
        alike: the key without the inputs of zips: what steps with a seed of their own go by.
    """

    __slots__ = ("alike", "key", "name", "unit")

    def __init__(self, key: int, name: str, unit: str = "index", alike: int | None = None) -> None:
        self.key = key
        self.name = name
        self.unit = unit
        self.alike = key if alike is None else alike


class BatchStream(Stream):
    """The stream of a batch: remembers the identities of its rows, which `unbatch` gives back.

    Attributes:
        streams: of the rows.
        positions: of the rows in their streams.
    """

    __slots__ = ("positions", "streams")

    def __init__(self, rows: Sequence[tuple[Stream, int]]) -> None:
        self._keep([stream for stream, _ in rows], [position for _, position in rows])

    def _keep(self, streams: list[Stream], positions: list[int]) -> None:
        first = streams[0]
        super().__init__(first.key, first.name, first.unit, first.alike)
        self.streams = streams
        self.positions = positions

    @classmethod
    def of(cls, elements: Sequence[Element]) -> BatchStream:
        """The stream of a batch of these elements.

        Two lists, no pair for each row: few batches are ever taken apart again.
        """
        made = cls.__new__(cls)
        made._keep([element[1] for element in elements], [element[2] for element in elements])
        return made

    @property
    def rows(self) -> list[tuple[Stream, int]]:
        """The identities of the rows: (stream, position)."""
        return list(zip(self.streams, self.positions, strict=True))


class Replacement(Stream):
    """The stream of a row that `on_error="replace"` gave the contents of another: the identity is the bad row's."""

    __slots__ = ()


def replaced(columns: Any, hole: Element) -> Element:
    """The columns of a good element in the place of a bad one, and under its identity."""
    return columns, _standing_in(hole[1]), hole[2]


def _standing_in(stream: Stream) -> Stream:
    if isinstance(stream, BatchStream):
        return BatchStream([(_standing_in(row), position) for row, position in stream.rows])
    return Replacement(stream.key, stream.name, stream.unit, stream.alike)


def is_replacement(stream: Stream) -> bool:
    """Whether an element, or a row of a batch, is not what was read in its place."""
    return any(map(is_replacement, stream.streams)) if isinstance(stream, BatchStream) else type(stream) is Replacement


class Failure:
    """Stands where the columns of an element would stand.

    Attributes:
        error: what failed.
        noted: it is counted, and listed among the bad records.
        known: a manifest said so before the run started.
        ignored: the rest of a file that its error hides is left out, as an `ignore_errors` says.
    """

    __slots__ = ("error", "ignored", "known", "noted")

    def __init__(self, error: DataError, known: bool = False) -> None:
        self.error = error
        self.ignored = False
        self.noted = False
        self.known = known


class Hole(Failure):
    """An element that failed. It keeps its place and identity, and counts like any other."""

    __slots__ = ()


class Raised(Failure):
    """An error on its way to the user; no element. Every step passes it on, and none counts it.

    A batch was waiting for the element and decided to raise, or the error hides the rest of a file, nobody knows how
    many elements (`DataError.lost`).
    """

    __slots__ = ()


def hole_of(error: DataError) -> Hole | Raised:
    """What stands for something that could not be read: no element where the error hides the rest of a file."""
    return Raised(error) if error.lost else Hole(error)


Element = tuple[Any, Stream, int]
"""(a tuple of columns, `Hole` or `Raised`; stream, position)."""


def element_keys(streams: list[Stream], positions: list[int]) -> Array:
    """The keys of some elements, uint64[N], vectorised."""
    n = len(streams)
    keys = np.fromiter((stream.key for stream in streams), np.uint64, n)
    return mix64_array(keys, np.fromiter(positions, np.uint64, n))


def locate(error: DataError, stream: Stream, position: int, stage: str = "") -> DataError:
    """Say in an error where its element came from."""
    return error.at(stream.name, position, stage, stream.unit)


def is_element(item: Element) -> bool:
    """Whether an item is an element, good or bad: everything but an error on its way."""
    return type(item[0]) is not Raised


def own_bytes(columns: Sequence[Any]) -> tuple[Any, ...]:
    """Columns that can be kept: views of a block become bytes of their own."""
    for column in columns:
        if type(column) is memoryview:
            return tuple([bytes(column) if type(column) is memoryview else column for column in columns])
    return tuple(columns)


def keep(element: Element) -> Element:
    """An element that can be held for long: it owns its bytes instead of pinning the block they came in."""
    value, stream, position = element
    return (own_bytes(value), stream, position) if type(value) is tuple else element


def identity_of(element: Element) -> tuple[Stream, int]:
    """The identity of what begins with this element: its own, without the rows of a batch."""
    _, stream, position = element
    if isinstance(stream, BatchStream):
        return Stream(stream.key, stream.name, stream.unit, stream.alike), position
    return stream, position
