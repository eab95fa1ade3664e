"""readers: the elements of one file, identified by their byte offset: lines, records of fixed length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import length_hint
from typing import Any

from ...errors import DataError
from ...extract.records.fixed import FixedReader
from ...extract.records.lines import LineReader
from ...extract.records.reading import BlockReader
from ...extract.storage.patterns import is_url
from ..element import Element, Stream, hole_of
from ..run import Context
from ..state.snapshot import Counted, State, fast_forward, int_part, start_of
from ..step import Running, close

__all__ = ["FixedRecordsFlow", "LinesFlow", "ReaderIterator", "element_of", "how_to_read", "path_of"]

REMOTE_BLOCK = 4 << 20
"""Bytes of one request to a remote storage: at 50 ms each, 256 KB would be 5 MB/s of a file."""

LOCAL_BLOCK: int | None = None
"""Bytes of one read from a local file; None for what the reader of its format finds best."""


def path_of(flow: Any, at: Context) -> str | None:
    """The path that the one outer element names; None where there is no such element."""
    for value, _, _ in flow.source.open(at):
        path: str = value[flow.column].decode(errors="surrogateescape")
        return path
    return None


def how_to_read(flow: Any, path: str, at: Context, state: State) -> dict[str, Any]:
    """What every reader is told. A remote file has many threads that read ahead: waiting needs no CPU."""
    remote = is_url(path)
    readers = at.run.remote_readers if flow.ahead and remote else at.run.readers if flow.ahead else None
    size = REMOTE_BLOCK if remote else LOCAL_BLOCK
    block = {} if size is None else {"block": size}
    return {"compression": flow.compression, "readers": readers, "start": start_of(state), **block}


@dataclass(frozen=True, slots=True)
class LinesFlow:
    """The lines of the text file that an outer element names.

    Attributes:
        source: gives the one outer element.
        column: which of its columns is the path.
        compression: "", "GZIP" or "ZLIB".
        ahead: whether reader threads run ahead.
    """

    source: Any
    column: int
    compression: str = ""
    ahead: bool = False

    def open(self, at: Context, state: State = None) -> Running:
        path = path_of(self, at)
        if path is None:
            return Counted(iter(()))
        reader = LineReader(path, **how_to_read(self, path, at, state))
        return ReaderIterator(reader, at.stream("lines", path, "offset"), at, state)


@dataclass(frozen=True, slots=True)
class FixedRecordsFlow:
    """The records of the file that an outer element names, each of `record` bytes.

    Attributes:
        source: gives the one outer element.
        column: which of its columns is the path.
        record: bytes of a record.
        header: bytes before the first.
        footer: bytes behind the last.
        compression: "", "GZIP" or "ZLIB".
        ahead: whether reader threads run ahead.
    """

    source: Any
    column: int
    record: int
    header: int = 0
    footer: int = 0
    compression: str = ""
    ahead: bool = False

    def open(self, at: Context, state: State = None) -> Running:
        path = path_of(self, at)
        if path is None:
            return Counted(iter(()))
        sizes: dict[str, Any] = {"record_bytes": self.record, "header_bytes": self.header, "footer_bytes": self.footer}
        reader = FixedReader(path, **sizes, **how_to_read(self, path, at, state))
        return ReaderIterator(reader, at.stream("fixed", path, "offset"), at, state)


class ReaderIterator(Running):
    """What a file holds as elements, damage as holes; reads block by block.

    Its state is the offset at which the present block begins, and how many items of it were given. Behind an error
    that hid the rest of the file nothing follows, also where the file can be read again by then: what was counted
    behind it would be other elements.

    Args:
        reader: begins at the offset of `state`.
        stream: of the elements.
        at: where it is opened.
        state: where to go on.
    """

    def __init__(self, reader: BlockReader, stream: Stream, at: Context, state: State = None) -> None:
        self._reader = reader
        self._blocks = reader.blocks()
        self._items: Iterator[tuple[int, Any]] = iter(())
        self._stream = stream
        self._begin = reader.start
        self._before = 0 if state is None else int_part(state, "before")  # items in front of the block
        self._size = 0
        self._lost = state is not None and bool(state.get("lost"))
        if self._lost:
            self._blocks.close()
            self._size = int_part(state, "given")
        elif state is not None:
            fast_forward(self, int_part(state, "given"), at)

    def __next__(self) -> Element:
        item = next(self._items, None)
        if item is None:
            block = next(self._blocks)
            self._before += self._size
            self._begin, self._size = block[0][0], len(block)
            self._items = iter(block)
            item = next(self._items)
        element = element_of(item, self._stream)
        if type(element[0]) is not tuple:
            self._lost = element[0].error.lost
        return element

    def snapshot(self) -> State:
        """The offset of the block, how many items are in front of it, and how many of it were given."""
        given = self._size - length_hint(self._items)
        state = {"block": self._begin, "before": self._before, "given": given}
        return {**state, "lost": True} if self._lost else state

    def ready(self) -> bool:
        """Whether the next item is there without waiting."""
        return length_hint(self._items) > 0 or self._reader.ready()

    def close(self) -> None:
        """End the reader."""
        self._reader.close()
        close(self._blocks)


def element_of(item: tuple[int, Any], stream: Stream) -> Element:
    """What a reader gives as an element, an error as a hole; one that hides the rest of a file is no element."""
    offset, value = item
    if isinstance(value, DataError):
        value.at(stream.name, offset, "read", "offset")
        return hole_of(value), stream, offset
    return (value,), stream, offset
