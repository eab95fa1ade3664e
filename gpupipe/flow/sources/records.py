"""records: the records of one TFRecord file, as bytes or as references, in file order or by index."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import chain
from typing import Any

from ...classes import dataclass
from ...errors import DataError, LengthError, PlanTypeError
from ...extract.records.index import TFRECORD, Kind, RecordIndex, find_index, record_index
from ...extract.records.reference import HeaderWalker, Reference, indexed_elements
from ...extract.records.tfrecord import RecordReader
from ...extract.storage.files import LOCAL, OpenFile, Version
from ...extract.storage.patterns import is_url
from ..access import AsItWas, RandomAccess, blocks_of, from_list
from ..bad.found import as_before, bad_element
from ..element import Element, Raised, Stream
from ..run import Context, Run
from ..state.snapshot import Counted, State, as_int, int_part, part
from ..step import Running
from .readers import ReaderIterator, at_the_end, element_of, how_to_read, overwritten, path_of

__all__ = ["RecordsFlow", "index_of", "uncounted"]


@dataclass(frozen=True, slots=True)
class RecordsFlow:
    """The records of the TFRecord file that an outer element names.

    Attributes:
        source: has the one outer element.
        column: which of its columns is the path.
        compression: "", "GZIP" or "ZLIB".
        references: yield references (file, offset, length) instead of payloads, if the file is local and uncompressed.
        ahead: whether threads read ahead.
        index: where indexes of files are kept, see `record_index`.
    """

    source: Any
    column: int
    compression: str = ""
    references: bool = False
    ahead: bool = False
    index: str = "memory"

    def open(self, at: Context, state: State = None) -> Running:
        path = path_of(self, at)
        if path is None:
            return Counted(iter(()))
        stream = at.stream("records", path, "offset")
        if self.references and not self.compression and not is_url(path):
            return as_before(at, None, _References(path, stream, self.index, state))
        first = None if state is None else int_part(state, "before")
        reader = RecordReader(path, first=first, index=self.index, **how_to_read(self, path, at, state))
        return as_before(at, None, ReaderIterator(reader, stream, at, state))

    def access(self, at: Context) -> RandomAccess:
        found = self.indexed(at, build=True)
        return from_list([]) if found is None else AsItWas(found, at)

    def indexed(self, at: Context, build: bool) -> Records | None:
        """The records by their index, see `index_of`."""
        found = index_of(self, at, build, "records", TFRECORD)
        return None if found is None else Records(self, *found)


class _References(Running):
    """References to the records of a file. The state is the offset of the last one, and how many were given."""

    def __init__(self, path: str, stream: Stream, index: str, state: State) -> None:
        last = part(state, "offset")
        self._lost = state is not None and bool(state.get("lost"))
        start, self._given = 0, 0
        if last is not None:
            start, self._given = as_int(last, "offset"), max(int_part(state, "given") - 1, 0)
        self._last: Any = (None, None, last)
        walker = HeaderWalker(path, start=start, first=self._given, where=index)
        self.items = self._elements(walker.rows(stream), stream)
        if self._lost:
            self.items.close()
            self._given = int_part(state, "given")
        elif last is not None:
            next(self, None)

    def _elements(self, rows: Iterator[Any], stream: Stream) -> Generator[Element, None, None]:
        for row in rows:
            element = row
            if type(row[0][0]) is not Reference:
                element = element_of((row[2], row[0][0]), stream)
                self._lost = element[0].error.lost
            self._last = element
            self._given += 1
            yield element

    def lose(self) -> None:
        self._lost = True
        self.items.close()

    def snapshot(self) -> State:
        """The offset of the last record, how many were given, and whether the rest of the file was lost there."""
        state = {"offset": self._last[2], "given": self._given}
        return {**state, "lost": True} if self._lost else state


class Records(RandomAccess):
    """The records of one file that has an index."""

    def __init__(self, flow: RecordsFlow, path: str, index: RecordIndex, stream: Stream) -> None:
        self.size = len(index) - (not index.lasting)  # an error that hides the rest of the file is not a record
        self._index = index
        self._path = path
        self._stream = stream
        self._references = flow.references
        self._file = None if index.version is None else OpenFile.of(path, index.version)
        self._tag = None if self._file is None else self._file.tag

    def one(self, index: int) -> Element:
        offset, length = self._index.extent(index)
        stream = self._stream
        error = self._index.faults.get(index)
        if error is not None:
            return bad_element(error.at(stream.name, offset, "read", "offset"), stream, offset)
        reference = Reference(self._path, offset, length, self._tag)
        if self._references:
            return (reference,), stream, offset
        try:
            return (reference.read(),), stream, offset
        except DataError as failed:
            return bad_element(failed.at(stream.name, offset, "read", "offset"), stream, offset)

    def strided(self, start: int, step: int) -> Iterator[Element]:
        """Every `step`-th record, from index `start`."""
        items = self.pick(blocks_of(start, self.size, step))
        if self._references and not self._index.faults and self._index.lasting:
            items = indexed_elements(self._index, self._path, self._stream, start, step)
        return chain(items, at_the_end(self._file, self._stream, self._end))

    def changed(self) -> Iterator[Element]:
        return overwritten(self._file, self._stream, self._end)

    @property
    def _end(self) -> int:
        return self._index.span(len(self._index) - 1)[1]


def index_of(flow: Any, at: Context, build: bool, name: str, kind: Kind) -> tuple[str, RecordIndex, Stream] | None:
    """The file of a flow, its index and its stream; None without an index or a file.

    Args:
        flow: as `path_of` takes it, with the place of its indexes.
        at: where it is opened.
        build: build a missing index.
        name: of the stream.
        kind: of the index.

    Raises:
        PlanTypeError: an index is to be built of a remote file.
        DataError: the file cannot be read to its end, see `uncounted`.
    """
    path = path_of(flow, at)
    if path is None:
        return None
    if is_url(path):
        if build:
            # a TypeError, so that `list(ds)`, which asks for a length, continues without one
            raise PlanTypeError(f"access by index needs local files, got {path}; copy it to a disk")
        return None
    try:
        version = Version.of_tag(LOCAL.size(path)[1])  # drops an open handle of an earlier version of the file
    except DataError:
        version = None
    if build:
        index = record_index(path, flow.index, kind=kind)
    else:
        known = find_index(path, version, flow.index, kind)
        if known is None:
            return None
        index = known
    stream = at.stream(name, path, "offset")
    if index.failure is not None:
        uncounted(at.run, index.failure, stream)
    return path, index, stream


def uncounted(run: Run, failure: DataError, stream: Stream) -> None:
    """Report a file that could not be read to its end. ``lost_files="skip"`` allows it, and the rest is left out.

    Raises:
        DataError: it is not allowed; a LengthError if only the number of elements is wanted.
    """
    element = Raised(failure), stream, failure.offset or 0
    if run.settings.lost_files == "skip":
        run.lose(element)
    elif run.counting:
        raise LengthError(
            failure.reason, file=failure.file, offset=failure.offset, stage=failure.stage, unit=failure.unit
        ) from failure
    else:
        run.note(element, "raised")
        raise failure.again()
