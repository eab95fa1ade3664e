"""source_places: what sources hold, by place: ranges, arrays, lists of files, records, items of an object."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

from ..errors import DataError, LengthError, PlanTypeError
from ..extract.index import RecordIndex, find_index, record_index, version_of
from ..extract.patterns import is_url
from ..extract.reference import Reference, indexed_elements
from ..extract.storage import LOCAL
from ..op import Array
from .base import Context, Element, Hole, Run, Stream
from .places import Access, Made, blocks_of, kept, opens, passes
from .shuffle import ShuffleFlow
from .shuffle_places import ShufflePlacesFlow
from .sources import FilesFlow, ParamFlow, Placed, RangeFlow, RecordsFlow, SlicesFlow
from .state import Counted, State
from .state import number as number_of

__all__ = ["ItemsFlow", "Records", "records_of"]


@dataclass(frozen=True, slots=True)
class ItemsFlow:
    """The numbers of the items of an object: what `from_indexable` asks it for."""

    count: int

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        return self.chosen(at, range(self.count), state)

    def chosen(self, at: Context, places: range, state: State = None) -> Iterator[Element]:
        """The elements at some places."""
        stream = at.stream("indexable", "from_indexable")
        done = 0 if state is None else number_of(state, "n")
        return Counted((((i,), stream, i) for i in places[done:]), done=done)


@opens(ItemsFlow)
def _items(flow: ItemsFlow, at: Context) -> Access:
    stream = at.stream("indexable", "from_indexable")
    return Made(flow.count, lambda i: ((i,), stream, i))


class FromPlaced(Access):
    """What a source holds by place, many elements at a time."""

    def __init__(self, placed: Placed) -> None:
        self.size = placed.size
        self._make = placed.make

    def one(self, place: int) -> Element:
        return next(self._make([place]))

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        return chain.from_iterable(self._make(block.tolist()) for block in blocks)


@opens(RangeFlow, FilesFlow)
def _placed(flow: RangeFlow | FilesFlow, at: Context) -> Access:
    return FromPlaced(flow.placed(at))


@opens(SlicesFlow)
def _slices(flow: SlicesFlow, at: Context) -> Access:
    placed = flow.placed(at)
    return kept(list(flow.open(at))) if placed is None else FromPlaced(placed)


@opens(ParamFlow)
def _param(flow: ParamFlow, at: Context) -> Access:
    return kept(list(flow.open(at)))


@opens(ShuffleFlow, ShufflePlacesFlow)
def _shuffled(flow: ShuffleFlow, at: Context) -> Access:
    """A shuffle of file names, which are few: the only buffer that has places."""
    once = replace(flow, repeat=1)
    if flow.repeat == 1:
        return kept(list(once.open(at)))
    return passes(lambda j: kept(list(once.open(at.in_pass(j, flow.repeat)))), flow.repeat)


class Records(Access):
    """The records of one file."""

    def __init__(self, flow: RecordsFlow, path: str, index: RecordIndex, stream: Stream) -> None:
        self.size = len(index) - (not index.lasting)  # the error of what could not be read is no record
        self._index = index
        self._path = path
        self._stream = stream
        self._references = flow.references

    def one(self, place: int) -> Element:
        offset, length = self._index.place(place)
        stream = self._stream
        error = self._index.faults.get(place)
        if error is not None:
            return Hole(error.at(stream.name, offset, "read", "offset")), stream, offset
        reference = Reference(self._path, offset, length)
        if self._references:
            return (reference,), stream, offset
        try:
            return (reference.read(),), stream, offset
        except DataError as failed:
            return Hole(failed.at(stream.name, offset, "read", "offset")), stream, offset

    def strided(self, start: int, step: int) -> Iterator[Element]:
        """Every `step`-th record from place `start` on."""
        if self._references and not self._index.faults and self._index.lasting:
            return indexed_elements(self._index, self._path, self._stream, start, step)
        return self.pick(blocks_of(start, self.size, step))


@opens(RecordsFlow)
def _records(flow: RecordsFlow, at: Context) -> Access:
    found = records_of(flow, at, build=True)
    return kept([]) if found is None else found


def records_of(flow: RecordsFlow, at: Context, build: bool) -> Records | None:
    """The records of a file whose index is there, or is built now."""
    for value, _, _ in flow.source.open(at):
        path = value[flow.column].decode(errors="surrogateescape")
        if is_url(path):
            if build:
                # a TypeError, so that `list(ds)`, which asks for a length, goes on without one
                raise PlanTypeError(f"a choice by place needs local files, got {path}; copy it to a disk")
            return None
        try:
            LOCAL.size(path)  # drops what is open of an earlier version of the file
        except DataError:
            if not build:
                return None
        index = record_index(path, flow.index) if build else find_index(path, version_of(path), flow.index)
        if index is None:
            return None
        stream = at.stream("records", path, "offset")
        if index.failure is not None:
            _uncounted(at.run, index.failure, stream)
        return Records(flow, path, index, stream)
    return None


def _uncounted(run: Run, failure: DataError, stream: Stream) -> None:
    """A file could not be read to its end: only where that is allowed, the records in front of that place are all.

    Raises:
        DataError: it is not; a LengthError where somebody only asks for their number.
    """
    hole = Hole(failure)
    hole.raised = True
    element = hole, stream, failure.offset or 0
    if run.settings.lost_files == "skip":
        run.lose(element)
    elif run.counting:
        raise LengthError(
            failure.reason, file=failure.file, offset=failure.offset, stage=failure.stage, unit=failure.unit
        ) from failure
    else:
        run.note(element, "raised")
        raise failure.again()
