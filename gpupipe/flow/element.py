"""element: the items of a chain: columns with their stream and position, and holes for those that failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import DataError, Unit
from ..graph.op import Array
from ..random import mix64_array

__all__ = [
    "BatchStream",
    "Element",
    "Failure",
    "Found",
    "Hole",
    "Raised",
    "Repetition",
    "Replacement",
    "Stream",
    "element_keys",
    "hole_of",
    "identity_of",
    "is_element",
    "is_repeated",
    "is_replacement",
    "locate",
    "repeated",
    "replaced",
    "visited",
]


class Stream:
    """One opened source: a file, an array, a generator. Its key and a position are the identity of an element.

    Attributes:
        key: 64 bits that depend on the context in which it was opened.
        name: for messages.
        unit: of positions.
        alike: the key without the inputs of zips; steps with a seed of their own use it.
        scope: the input of which cache it was opened in, where keys are those of the root; 0 for none.
        first: the same source on the first visit of its elements, for a later one (`Context.in_visit`).
    """

    __slots__ = ("alike", "first", "key", "name", "scope", "unit")

    first: Stream | None

    def __init__(self, key: int, name: str, unit: Unit = "index", alike: int | None = None, scope: int = 0) -> None:
        self.first = None
        self.key = key
        self.name = name
        self.unit: Unit = unit
        self.alike = key if alike is None else alike
        self.scope = scope


def visited(stream: Stream, first: Stream) -> Stream:
    """The stream of a later visit, with that of the first one."""
    stream.first = first
    return stream


class BatchStream(Stream):
    """The stream of a batch: keeps the identities of its rows for `unbatch`.

    Attributes:
        streams: of the rows.
        positions: of the rows in their streams.
    """

    __slots__ = ("positions", "streams")

    def __init__(self, streams: list[Stream], positions: list[int]) -> None:
        first = streams[0]
        super().__init__(first.key, first.name, first.unit, first.alike, first.scope)
        self.first = first.first
        self.streams = streams
        self.positions = positions

    @classmethod
    def of(cls, elements: Sequence[Element]) -> BatchStream:
        """The stream of a batch of these elements.

        Keeps two lists instead of a pair for each row: few batches are ever unbatched.
        """
        return cls([element[1] for element in elements], [element[2] for element in elements])

    @property
    def rows(self) -> list[tuple[Stream, int]]:
        """The identities of the rows: (stream, position)."""
        return list(zip(self.streams, self.positions, strict=True))


class Replacement(Stream):
    """The stream of a row that `on_error="replace"` filled with another's contents: the identity is the bad row's."""

    __slots__ = ()


class Repetition(Replacement):
    """The stream of a row that comes a second time, so that all ranks have as many."""

    __slots__ = ()


def replaced(columns: Any, hole: Element) -> Element:
    """The columns of a good element under the identity of a bad one."""
    return columns, _replacement(hole[1], Replacement), hole[2]


def repeated(element: Element) -> Element:
    """An element that comes a second time, so that all ranks have as many."""
    return element[0], _replacement(element[1], Repetition), element[2]


def _replacement(stream: Stream, kind: type[Replacement]) -> Stream:
    if isinstance(stream, BatchStream):
        return BatchStream([_replacement(row, kind) for row in stream.streams], stream.positions)
    made = kind(stream.key, stream.name, stream.unit, stream.alike, stream.scope)
    made.first = stream.first
    return made


def is_replacement(stream: Stream) -> bool:
    """Whether an element, or any row of a batch, is a replacement for a bad one, or comes a second time."""
    if isinstance(stream, BatchStream):
        return any(map(is_replacement, stream.streams))
    return isinstance(stream, Replacement)


def is_repeated(stream: Stream) -> bool:
    """Whether an element, or every row of a batch, comes a second time, so that all ranks have as many."""
    return all(map(is_repeated, stream.streams)) if isinstance(stream, BatchStream) else type(stream) is Repetition


class Found:
    """An element that a step found bad, as states know it (`FoundBad`): every hole that is made of it shares this.

    Attributes:
        number: among all that were found.
        error: kind, stage, reason and whether it hides the rest of a file; empty once it was reported.
        cause: the error itself until it was reported, for an element that is made again within a run.
        again: whether the element failed before: it is made again, after a state or within a run.
        lost: whether its error hides the rest of a file.
        lacks: whether it was good before a state, and failed when it was made again after it (`Run.lacks`).
    """

    __slots__ = ("again", "cause", "error", "lacks", "lost", "number")

    def __init__(self, number: int = 0, error: tuple[Any, ...] = (), again: bool = False) -> None:
        self.number, self.again = number, again
        self.cause: DataError | None = None
        told = error[:4]
        self.error = told if len(told) == 4 and told[0] else ()
        self.lost = len(told) == 4 and told[3]
        self.lacks = len(error) % 4 == 1

    def reported(self) -> None:
        """Note that the error was listed, and raised if errors are."""
        self.error, self.cause = (), None

    def written(self) -> tuple[Any, ...]:
        """What a state has of it; `error` takes it."""
        error = self.error or (("", "", "", True) if self.lost else ())
        return (*error, True) if self.lacks else error


class Failure:
    """An error in the place of an element's columns.

    Attributes:
        error: why it failed.
        noted: whether it was counted and listed among the bad records, or will be once its pass is asked for.
        known: whether a manifest listed it before the run started.
        found: what states know of it.
        ignored: whether an `ignore_errors` leaves out the rest of the file that the error hides.
        batch: the batch that failed, where each of its rows is this one object, which is noted once: after whichever
            row a run is resumed, what is noted has the same key.
    """

    __slots__ = ("batch", "error", "found", "ignored", "known", "noted")

    def __init__(self, error: DataError, known: bool = False, found: Found | None = None) -> None:
        self.error = error
        self.found = found
        self.ignored = False
        self.noted = False
        self.batch: tuple[Stream, int] | None = None
        self.known = known


class Hole(Failure):
    """An element that failed. It keeps its position and identity, and counts like any other."""

    __slots__ = ()


class Raised(Failure):
    """An error on its way to the user, not an element. Every step passes it on, and none counts it.

    Either a batch needed the element and raises, or the error hides the rest of a file, an unknown number of elements
    (`DataError.lost`).
    """

    __slots__ = ()


def hole_of(error: DataError) -> Hole | Raised:
    """A failed read as a `Hole`, or as `Raised` if the error hides the rest of a file."""
    return Raised(error) if error.lost else Hole(error)


Element = tuple[Any, Stream, int]
"""(a tuple of columns, `Hole` or `Raised`; stream, position)."""


def element_keys(streams: list[Stream], positions: list[int]) -> Array:
    """The keys of N elements, uint64[N]."""
    n = len(streams)
    keys = np.fromiter((stream.key for stream in streams), np.uint64, n)
    return mix64_array(keys, np.fromiter(positions, np.uint64, n))


def locate(error: DataError, stream: Stream, position: int, stage: str = "") -> DataError:
    """Add the origin of its element to an error."""
    return error.at(stream.name, position, stage, stream.unit)


def is_element(item: Element) -> bool:
    """Whether an item is an element, good or bad: everything but `Raised`."""
    return type(item[0]) is not Raised


def identity_of(element: Element) -> tuple[Stream, int]:
    """The identity of a batch or window that starts with this element: its own, without the rows of a batch."""
    _, stream, position = element
    if isinstance(stream, BatchStream):
        return Stream(stream.key, stream.name, stream.unit, stream.alike, stream.scope), position
    return stream, position
