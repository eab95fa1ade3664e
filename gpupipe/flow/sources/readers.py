"""readers: sources of one file whose elements are identified by byte offset: lines, CSV, records of fixed length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import length_hint
from typing import TYPE_CHECKING, Any

from ...classes import dataclass
from ...errors import DataError
from ...extract.records.reading import BlockReader
from ...extract.storage.files import LOCAL, OpenFile
from ...extract.storage.patterns import is_url
from ...extract.storage.ranges_ahead import Pool
from ...extract.storage.waiting import LIMITS
from ..bad.found import as_before, bad_element
from ..element import Element, Stream
from ..run import Context
from ..state.snapshot import Counted, State, fast_forward, int_part
from ..step import Running, close

if TYPE_CHECKING:
    from ...extract.tables.csv_layout import CsvLayout

__all__ = [
    "CsvFlow",
    "FixedRecordsFlow",
    "LinesFlow",
    "ReaderIterator",
    "at_the_end",
    "element_of",
    "how_to_read",
    "overwritten",
    "path_of",
    "readers_of",
]

REMOTE_BLOCK = 4 << 20
"""Bytes of one request to a remote storage: at 50 ms each, requests of 256 KB would read 5 MB/s."""

LOCAL_BLOCK: int | None = None
"""Bytes of one read from a local file; None leaves it to the reader of the format."""


def path_of(flow: Any, at: Context) -> str | None:
    """The path in the one outer element; None if there is no such element."""
    for value, _, _ in flow.source.open(at):
        path: str = value[flow.column].decode(errors="surrogateescape")
        return path
    return None


def how_to_read(flow: Any, path: str, at: Context, state: State) -> dict[str, Any]:
    """The arguments of every reader of bytes."""
    size = REMOTE_BLOCK if is_url(path) else LOCAL_BLOCK
    block = {} if size is None else {"block": size}
    start = 0 if state is None else int_part(state, "block")
    ahead = {"readers": readers_of(flow, path, at), "budget": at.run.remote.budget if is_url(path) else None}
    return {"compression": flow.compression, "start": start, **ahead, **block}


def readers_of(flow: Any, path: str, at: Context) -> Pool | None:
    """The threads that read a file ahead; None where the thread that needs it reads.

    Remote files have many: waiting needs no CPU.
    """
    if not flow.ahead:
        return None
    return at.run.remote.pool if is_url(path) else at.run.readers


def open_file(flow: Any, at: Context, state: State, kind: str, reader: Callable[..., BlockReader]) -> Running:
    """Open the file that the outer element names, with a reader that takes `how_to_read`; empty without one."""
    path = path_of(flow, at)
    if path is None:
        return Counted(iter(()))
    opened = reader(path, **how_to_read(flow, path, at, state))
    return as_before(at, None, ReaderIterator(opened, at.stream(kind, path, "offset"), at, state))


@dataclass(frozen=True, slots=True)
class LinesFlow:
    """The lines of the text file that an outer element names.

    Attributes:
        source: has the one outer element.
        column: which of its columns is the path.
        compression: "", "GZIP" or "ZLIB".
        ahead: whether threads read ahead.
    """

    source: Any
    column: int
    compression: str = ""
    ahead: bool = False

    def open(self, at: Context, state: State = None) -> Running:
        from ...extract.records.lines import LineReader

        return open_file(self, at, state, "lines", LineReader)


@dataclass(frozen=True, slots=True)
class FixedRecordsFlow:
    """The records of the file that an outer element names, each of `record` bytes.

    Attributes:
        source: has the one outer element.
        column: which of its columns is the path.
        record: bytes of a record.
        header: bytes before the first record.
        footer: bytes after the last record.
        compression: "", "GZIP" or "ZLIB".
        ahead: whether threads read ahead.
    """

    source: Any
    column: int
    record: int
    header: int = 0
    footer: int = 0
    compression: str = ""
    ahead: bool = False

    def open(self, at: Context, state: State = None) -> Running:
        from ...extract.records.fixed import FixedReader

        reader = partial(FixedReader, record_bytes=self.record, header_bytes=self.header, footer_bytes=self.footer)
        return open_file(self, at, state, "fixed", reader)


@dataclass(frozen=True, slots=True)
class CsvFlow:
    """The records of the CSV file that an outer element names, a column for each value.

    Attributes:
        source: has the one outer element.
        column: which of its columns is the path.
        compression: "", "GZIP" or "ZLIB".
        layout: says how a record is read.
        ahead: whether threads read ahead.
    """

    source: Any
    column: int
    compression: str
    layout: CsvLayout
    ahead: bool = False

    def open(self, at: Context, state: State = None) -> Running:
        from ...extract.tables.csv import CsvReader

        return open_file(self, at, state, "csv", partial(CsvReader, layout=self.layout))


class ReaderIterator(Running):
    """The elements of a file, with holes for damaged ones; reads block by block.

    Its state is the offset of the present block, and how many of its items were given. An error that hid the rest of
    the file ends it for good, even if the file is readable again on resume: the elements counted after the error
    would be others.

    Args:
        reader: starts at the offset of `state`.
        stream: of the elements.
        at: where it is opened.
        state: to resume from.
    """

    def __init__(self, reader: BlockReader, stream: Stream, at: Context, state: State = None) -> None:
        self._reader = reader
        self._blocks = reader.blocks()
        self._items: Iterator[tuple[int, Any]] = iter(())
        self._stream = stream
        self._offset = reader.start
        self._before = 0 if state is None else int_part(state, "before")  # items before the block
        self._size = 0
        self._lost = state is not None and bool(state.get("lost"))
        if self._lost:
            self._blocks.close()
            self._size = int_part(state, "given")
            return
        if reader.budget is not None:
            reader.begin()
        if state is not None:
            fast_forward(self, int_part(state, "given"), at)

    def __next__(self) -> Element:
        item = next(self._items, None)
        if item is None:
            block = next(self._blocks)
            self._before += self._size
            self._offset, self._size = block[0][0], len(block)
            self._items = iter(block)
            item = next(self._items)
        element = element_of(item, self._stream)
        if type(element[0]) is not tuple:
            self._lost = element[0].error.lost
        return element

    def snapshot(self) -> State:
        """The offset of the block, the number of items before it, and how many of its items were given."""
        given = self._size - length_hint(self._items)
        state = {"block": self._offset, "before": self._before, "given": given}
        return {**state, "lost": True} if self._lost else state

    def lose(self) -> None:
        self._lost = True
        self._items = iter(())
        self._blocks.close()

    def ready(self) -> bool:
        """Whether the next item can be had without waiting."""
        return length_hint(self._items) > 0 or self._reader.ready()

    def close(self) -> None:
        self._reader.close()
        close(self._blocks)


def element_of(item: tuple[int, Any], stream: Stream) -> Element:
    """A reader's item as an element: an error as a hole, or as `Raised` if it hides the rest of the file.

    The value of an item is its one column, or a tuple of its columns.
    """
    offset, value = item
    if isinstance(value, DataError):
        return bad_element(value.at(stream.name, offset, "read", "offset"), stream, offset)
    return value if type(value) is tuple else (value,), stream, offset


def overwritten(file: OpenFile | None, stream: Stream, position: int) -> Iterator[Element]:
    """What comes behind the last element of a file that was read by index: an error if it was written to meanwhile.

    If it was replaced, each element was read as it was, or is an error of its own. Of a version of which an error has
    said so there is none. Arguments as of `at_the_end`.
    """
    limits = LIMITS.get()
    told = limits is not None and file is not None and (file.path, file.tag) in limits.changed
    if file is not None and file.storage is LOCAL and not told:
        yield from _confirmed(partial(LOCAL.confirm, file.path, file.tag, replaced=True), stream, position)


def at_the_end(file: OpenFile | None, stream: Stream, position: int) -> Iterator[Element]:
    """What comes behind the last element of a file that was read in order: an error if the file was changed meanwhile.

    Args:
        file: the version that was read; None if it is unknown.
        stream: of its elements.
        position: behind that of the last one.
    """
    if file is not None:
        yield from _confirmed(file.confirm, stream, position)


def _confirmed(confirm: Callable[[], None], stream: Stream, position: int) -> Iterator[Element]:
    try:
        confirm()
    except DataError as error:
        error.offset, error.unit = position, stream.unit
        yield element_of((position, error.kept().hiding()), stream)
