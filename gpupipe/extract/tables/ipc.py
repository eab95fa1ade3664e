"""ipc: Arrow IPC files (Feather v2); a block is a record batch, of which only the chosen columns are read.

pyarrow does not tell how many rows a record batch has without reading it, so the lengths are read here from the
metadata of the messages: FlatBuffers, of which only tables, vectors of structs and integers are needed. A batch with
another number of rows than its columns, or more than its buffers have room for (`ipc_rows`), makes its file one whose
rows are not known.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from math import inf
from typing import Any, ClassVar

from gpupipe.errors import DataError
from gpupipe.extract.storage.files import OpenFile
from gpupipe.extract.tables.arrow import arrow, chosen, columns_of
from gpupipe.extract.tables.byte_file import ByteFile
from gpupipe.extract.tables.columns import Column, Nulls
from gpupipe.extract.tables.ipc_rows import lengths, most_of_compressed, room
from gpupipe.extract.tables.table import MOST_ROWS, Format, Table

from ...classes import dataclass

__all__ = ["Ipc"]

_MAGIC = b"ARROW1"
_RECORD_BATCH = 3  # of the union MessageHeader
_CONTINUES = 0xFFFFFFFF  # before the length of a message's metadata
_VERSION_5 = 4  # of the enum MetadataVersion
_LIKELY = 64
"""Bytes that a compressed one may stand for without a look at the buffer, which says how many they are."""

_SHOWN = 5
"""Columns whose numbers of rows an error lists."""

_METADATA = 64 << 20
"""Bytes of the longest footer, and of a message's metadata."""


@dataclass(frozen=True)
class Ipc(Format):
    """Arrow IPC files, read by pyarrow."""

    name: ClassVar[str] = "ArrowDataset"

    def open(self, path: str, names: Sequence[str] | None = None) -> Table:
        pa = arrow(self.name)
        file = self.opened(path)
        try:
            with self.opening(file, "one without a sound footer"):
                blocks = list(_blocks(file))
                schema = _reader(pa, file, None).schema
                batches = [_rows(file, schema, *block) for block in blocks]
                untold = sum(rows for rows, told in batches if not told)
                if untold > MOST_ROWS:
                    raise DataError(
                        f"one of {untold} rows without bytes, more than {MOST_ROWS}; write it with another column"
                    )
                found, columns = chosen(schema, names)
                fields = [schema.get_field_index(name) for name in found if not isinstance(columns[name], str)]
                reader = _reader(pa, file, fields)
        except DataError as error:
            if error.stage:  # of the storage
                raise
            raise self.damaged(file, error.reason) from error
        return _Ipc(file, columns, [rows for rows, _ in batches], self.defaults, reader)


def _reader(pa: Any, file: OpenFile, fields: list[int] | None) -> Any:
    """Open a file to read some of its columns; an empty list is all of them to pyarrow, and nothing is read then."""
    options = pa.ipc.IpcReadOptions(included_fields=fields or None, use_threads=False)
    return pa.ipc.open_file(pa.PythonFile(ByteFile(file), "r"), options=options)


class _Ipc(Table):
    def __init__(self, *args: Any) -> None:
        *common, self._reader = args
        super().__init__(*common)

    def load(self, block: int) -> Sequence[tuple[Column, Nulls]]:
        batch = self._reader.get_batch(block)
        batch.validate(full=True)  # offsets are read below without further checks
        return columns_of(batch.column(batch.schema.get_field_index(name)) for name in self.columns)


def _blocks(file: OpenFile) -> Iterator[tuple[int, int, int]]:
    """Where the metadata of each record batch are, how many bytes they have, and how many its buffers have after them.

    Raises:
        DataError: this is no IPC file, or a damaged one; without a stage.
        struct.error, IndexError: it is damaged.
    """
    head = file.read_up_to(0, min(file.size, 8))
    if head[:6] != _MAGIC:
        stream = head[:4] == struct.pack("<I", _CONTINUES)
        raise DataError(
            "an IPC stream, which has no index of its batches; write it with pyarrow.ipc.new_file"
            if stream
            else "one that does not start with ARROW1"
        )
    end = file.read(file.size - min(file.size, 10), min(file.size, 10))
    (length,) = struct.unpack_from("<i", end)
    if end[4:] != _MAGIC or not 0 < length <= min(file.size - 18, _METADATA):
        raise DataError("one without a sound footer; it may be cut off")
    footer = _Flat(file.read(file.size - 10 - length, length))
    root, left = footer.root(), file.size
    for at in footer.structs(root, 3, 24):  # Footer.recordBatches, of Block
        offset, size, body = struct.unpack_from("<qi4xq", footer.data, at)
        left -= size + body  # a footer that names one batch many times is not followed
        if not (8 <= size <= _METADATA and offset >= 0 and body >= 0 and left >= 0):
            raise DataError("one with a record batch outside of it")
        yield offset, size, body
    _check_listed(file, footer, file.size - 10 - length)


def _check_listed(file: OpenFile, footer: _Flat, end: int) -> None:
    """Check that no message follows those that a footer lists; in most files there is no room for one.

    Raises:
        DataError: one does; without a stage.
    """
    root = footer.root()
    blocks = [
        struct.unpack_from("<qi4xq", footer.data, at) for field in (2, 3) for at in footer.structs(root, field, 24)
    ]
    last = max([sum(block) for block in blocks], default=0)
    if not blocks:  # the schema stands at the start, in a message without a body
        mark, length = struct.unpack("<Ii", file.read(8, 8))
        last = 16 + length if mark == _CONTINUES else end
    if 0 <= last < end - 8:
        mark, length = struct.unpack("<Ii", file.read(last, 8))
        if mark == _CONTINUES and length:
            raise DataError("one whose footer does not list all of its record batches; copy the file again")


def _rows(file: OpenFile, schema: Any, offset: int, size: int, body: int) -> tuple[int, bool]:
    """The rows of a record batch, of all of whose columns `schema` has the types, and whether any byte tells of them.

    Raises:
        DataError: it is another message, or has another number of rows than its columns, or more than its buffers have
            room for; without a stage.
        struct.error, IndexError: it is damaged.
    """
    message = file.read(offset, size)
    flat = _Flat(message[8:] if message[:4] == struct.pack("<I", _CONTINUES) else message[4:])
    root = flat.root()
    if flat.number(root, 1, "<B") != _RECORD_BATCH:
        raise DataError("one with another message in place of a record batch")
    batch = flat.table(root, 2)
    rows = flat.number(batch, 0, "<q")
    if len(schema) and rows not in lengths(schema, _nodes(flat, batch)):  # the first one tells, most likely
        said = dict.fromkeys(islice(lengths(schema, _nodes(flat, batch)), _SHOWN))
        raise DataError(
            f"one with a record batch that says it has {rows} rows, and whose columns say they have "
            f"{' or '.join(map(str, said)) or 'none'}; copy the file again, or write it anew"
        )
    old = flat.number(root, 0, "<h") < _VERSION_5
    codec = flat.number(flat.table(batch, 3), 0, "<b") if flat.has(batch, 3) else None

    def most(sizes: Iterator[int]) -> float:
        return room(schema, rows, sizes, flat.longs(batch, 4), old=old)

    found = most(size if codec is None else _LIKELY * size for _, size in _buffers(flat, batch, body))
    if codec is not None and rows > found:
        found = most(_expanded(file, codec, offset + size + at, n) for at, n in _buffers(flat, batch, body))
    if rows > found:
        raise DataError(
            f"one with a record batch that says it has {rows} rows, and whose bytes have room for {found:.0f}; "
            "copy the file again, or write it anew"
        )
    return rows, found != inf


def _nodes(flat: _Flat, batch: int) -> Iterator[int]:
    """The number of values of each column of a record batch, and of each array inside of one."""
    return (struct.unpack_from("<q", flat.data, place)[0] for place in flat.structs(batch, 1, 16))


def _buffers(flat: _Flat, batch: int, body: int) -> Iterator[tuple[int, int]]:
    """Where each buffer of a record batch starts in its body, and its bytes that are there."""
    for place in flat.structs(batch, 2, 16):
        at, size = struct.unpack_from("<qq", flat.data, place)
        yield at, max(min(size, body - at), 0) if at >= 0 else 0


def _expanded(file: OpenFile, codec: int, at: int, size: int) -> int:
    """The bytes of a compressed buffer after decompression, as it says, but no more than it can have."""
    if size <= 8:
        return 0
    (found,) = struct.unpack("<q", file.read(at, 8))
    return size - 8 if found == -1 else max(min(found, most_of_compressed(codec, size - 8)), 0)


class _Flat:
    """A FlatBuffer. Every offset is checked by `struct`, which refuses to read outside of the data."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def _at(self, form: str, place: int) -> int:
        if place < 0:
            raise IndexError(place)
        (number,) = struct.unpack_from(form, self.data, place)
        return int(number)

    def root(self) -> int:
        """The place of the root table."""
        return self._at("<I", 0)

    def _field(self, table: int, field: int) -> int | None:
        """The place of a field of a table; None if it has its default."""
        layout = table - self._at("<i", table)
        if self._at("<H", layout) < 6 + 2 * field:
            return None
        offset = self._at("<H", layout + 4 + 2 * field)
        return table + offset if offset else None

    def number(self, table: int, field: int, form: str) -> int:
        """A field that is a number; 0 by default."""
        place = self._field(table, field)
        return 0 if place is None else self._at(form, place)

    def table(self, table: int, field: int) -> int:
        """The place of the table that a field points to."""
        place = self._field(table, field)
        if place is None:
            raise IndexError(field)
        return place + self._at("<I", place)

    def has(self, table: int, field: int) -> bool:
        """Whether a field is there."""
        return self._field(table, field) is not None

    def longs(self, table: int, field: int) -> Iterator[int]:
        """The numbers in a field that is a vector of them, of 64 bits."""
        return (self._at("<q", place) for place in self.structs(table, field, 8))

    def structs(self, table: int, field: int, size: int) -> range:
        """The places of the structs in a field that is a vector of them."""
        if self._field(table, field) is None:
            return range(0)
        vector = self.table(table, field)
        count = self._at("<I", vector)
        if vector + 4 + count * size > len(self.data):
            raise IndexError(count)
        return range(vector + 4, vector + 4 + count * size, size)
