"""elements_file: elements with their identities in a file, for `cache`, `snapshot`, `save` and `load`.

The file is framed like a TFRecord file: every record has its length and two CRCs, and damage is found by the reader
that finds it there. The records are, by their first byte,

    G   the head: the rest of the magic, u32 version, JSON: type of the elements and what they depend on
    S   a stream: u32 slot, u64 key, u16 length of the unit, unit, name. A slot may be given again
    E   an element: its identity, u16 number of columns, the columns (see `columns`)
    H   a hole: its identity, JSON of its error
    Z   the end: u64 number of elements and holes. A file without it is not whole

An identity is u8 0, u32 slot, u64 position; or, for a batch, u8 1, u64 position, u32 rows, u32 slot of each, u64
position of each. All little-endian; nothing is ever pickled.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from crc32c import crc32c

from gpupipe import errors
from gpupipe.errors import DataError, MissingFileError, RecordError
from gpupipe.extract.columns import Cursor, add_column, read_column
from gpupipe.extract.crc import mask, masked_crc32c
from gpupipe.extract.element_json import Malformed
from gpupipe.extract.storage import LocalStorage
from gpupipe.extract.tfrecord import RecordReader

__all__ = ["ElementsReader", "ElementsWriter", "Saved", "StreamLike"]

_MAGIC = b"GPUPIPE elements\0"
_VERSION = 1
_FLUSH = 1 << 20
_SLOTS = 1 << 18
"""Streams that the reader's table holds: an element names its stream by a number below this."""

_END = 12 + 9 + 4

Saved = tuple["tuple[Any, ...] | DataError", "Any | list[tuple[Any, int]]", int]
"""(columns or error, stream or the (stream, position) of each row of a batch, position)."""


class StreamLike(Protocol):
    """What identifies a stream."""

    key: int
    name: str
    unit: str


class ElementsWriter:
    """Writes elements to a new file. No descriptor is held between writes, so thousands may be open.

    Args:
        path: the file, which must not exist. Give it its final name once `finish` was called.
        head: goes into the head; plain JSON.
        compression: "" or "GZIP".

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, path: str, head: dict[str, Any], compression: str = "") -> None:
        self.path = path
        self.count = 0
        self._stream = zlib.compressobj(6, zlib.DEFLATED, 31) if compression else None
        self._buffer: list[Any] = []
        self._size = 0
        self._slots: dict[int, tuple[int, StreamLike]] = {}  # by id, and what has it: an id is used again
        self._pid = os.getpid()
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        self._record([_MAGIC, struct.pack("<I", _VERSION), json.dumps(head).encode()])

    def write(
        self,
        value: Sequence[Any] | DataError,
        stream: Any,
        position: int,
        rows: Sequence[tuple[Any, int]] | None = None,
    ) -> None:
        """Append one element, or the error that stands for one.

        Args:
            value: the columns, or the error.
            stream: of the element.
            position: in that stream.
            rows: where the element is a batch, the (stream, position) of each of its rows.

        Raises:
            PlanTypeError: a column that files cannot hold.
            OSError: the file cannot be written.
        """
        needed = 1 if rows is None else len(rows)
        if needed > _SLOTS:
            raise DataError(f"a batch in a file may have {_SLOTS} rows, got {needed}")
        if len(self._slots) + needed > _SLOTS:  # all are given away anew: a slot means what was said of it last
            self._slots.clear()
        if rows is None:
            identity = struct.pack("<BIQ", 0, self._slot(stream), position)
        else:
            slots = [self._slot(row) for row, _ in rows]
            n = len(rows)
            identity = struct.pack(f"<BQI{n}I{n}Q", 1, position, n, *slots, *(place for _, place in rows))
        if isinstance(value, DataError):
            self._record([b"H", identity, json.dumps(_error_to_json(value)).encode()])
        else:
            parts: list[Any] = [b"E", identity, struct.pack("<H", len(value))]
            for column in value:
                add_column(column, parts)
            self._record(parts)
        self.count += 1

    def finish(self) -> None:
        """Write the end, and wait until the disk has everything."""
        self._record([b"Z", struct.pack("<Q", self.count)])
        if self._stream is not None:
            self._put(self._stream.flush())
        self._flush()
        fd = os.open(self.path, os.O_RDWR)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def discard(self) -> None:
        """Remove the file. In a forked child nothing happens: it is the parent's."""
        if os.getpid() != self._pid:
            return
        self._buffer, self._size = [], 0
        try:
            os.remove(self.path)
        except FileNotFoundError:  # somebody tidied up
            return

    def _slot(self, stream: StreamLike) -> int:
        known = self._slots.get(id(stream))
        if known is not None:
            return known[0]
        slot = len(self._slots)
        self._slots[id(stream)] = slot, stream
        unit, name = (text.encode(errors="surrogateescape") for text in (stream.unit, stream.name))
        self._record([b"S", struct.pack("<IQH", slot, stream.key, len(unit)), unit, name])
        return slot

    def _record(self, parts: list[Any]) -> None:
        length = struct.pack("<Q", sum(map(len, parts)))
        crc = 0
        for part in parts:
            crc = crc32c(part, crc)
        framed = [length, struct.pack("<I", masked_crc32c(length)), *parts, struct.pack("<I", mask(crc))]
        # Joined at once: the parts are views of arrays that belong to somebody else.
        data = b"".join(framed)
        self._put(data if self._stream is None else self._stream.compress(data))
        if self._size >= _FLUSH:
            self._flush()

    def _put(self, data: bytes) -> None:
        self._buffer.append(data)
        self._size += len(data)

    def _flush(self) -> None:
        if os.getpid() != self._pid:
            raise DataError("this file belongs to the process that began it")
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0))  # never made anew
        try:
            for data in self._buffer:
                view = memoryview(data)
                while len(view):
                    view = view[os.write(fd, view) :]
        finally:
            os.close(fd)
        self._buffer, self._size = [], 0


class ElementsReader:
    """Reads such a file from its begin to its end, in blocks; it never holds all of it.

    The file is opened once: another file put in its place is read by the next reader. One that shrinks is an error.

    Args:
        path: the file.
        compression: "" or "GZIP".

    Raises:
        MissingFileError: there is no such file.
        RecordError: it is no file of elements, or of a later version; from every method where it is damaged.
    """

    def __init__(self, path: str, compression: str = "") -> None:
        self.path = path
        self.compression = compression
        self._storage = LocalStorage(limit=1)  # its own, so that its descriptor stays the same
        self._reader = RecordReader(path, compression=compression, storage=self._storage)
        self._records = iter(self._reader)
        self.head = self._head()

    def check_end(self) -> None:
        """Check that the last record is the end, where the file is not compressed: it costs one read."""
        if self.compression:
            return
        size, tag = self._storage.size(self.path)
        try:
            data = self._storage.read(self.path, max(size - _END, 0), min(_END, size), tag)
        except MissingFileError:
            raise
        except DataError as error:
            raise self._damaged(str(error), size) from error
        crc = struct.pack("<I", masked_crc32c(data[12:21]))
        if data[:8] != struct.pack("<Q", 9) or data[12:13] != b"Z" or data[21:] != crc:
            raise self._damaged("it ends without its last record", max(size - _END, 0))

    def elements(self, make_stream: Callable[[int, str, str], Any]) -> Iterator[Saved]:
        """Iterate over the elements once.

        Args:
            make_stream: makes a stream of its key, name and unit.

        Raises:
            RecordError: the file is damaged, or ends too early; names the file and the offset.
        """
        slots: dict[int, Any] = {}
        count = 0
        for offset, record in self._records:
            if isinstance(record, DataError):
                raise self._damaged(record.reason, offset) from record
            try:
                kind = bytes(record[:1])
                cursor = Cursor(record[1:])
                if kind == b"S":
                    slot, key, n = struct.unpack("<IQH", cursor.take(14))
                    if slot >= _SLOTS:
                        raise Malformed(f"no stream has the number {slot}")
                    unit, name = bytes(cursor.take(n)), bytes(cursor.take(cursor.left))
                    slots[slot] = make_stream(
                        key, name.decode(errors="surrogateescape"), unit.decode(errors="surrogateescape")
                    )
                    continue
                if kind == b"Z":
                    if cursor.u64() != count or cursor.left:
                        raise Malformed(f"the file says it has another number of elements than {count}")
                    break
                where, position = _identity(cursor, slots)
                if kind == b"E":
                    (columns,) = cursor.numbers(1, "H")
                    value: Any = tuple([read_column(cursor) for _ in range(columns)])
                    if cursor.left:
                        raise Malformed(f"{cursor.left} bytes are left over")
                elif kind == b"H":
                    value = _error_from_json(bytes(cursor.take(cursor.left)))
                else:
                    raise Malformed(f"no record begins with {kind!r}")
            except Malformed as error:
                raise self._damaged(str(error), offset) from error
            count += 1
            yield value, where, position
        else:
            raise self._damaged("it ends without its last record", None)
        for offset, _ in self._records:
            raise self._damaged("something follows its last record", offset)

    def close(self) -> None:
        """Close the file."""
        self._reader.close()
        self._storage.close()

    def _head(self) -> dict[str, Any]:
        offset, record = next(self._records, (0, None))
        if record is None:
            raise self._damaged("it is empty", 0)
        if isinstance(record, MissingFileError):
            raise record
        if isinstance(record, DataError):
            raise self._damaged(record.reason, offset) from record
        n = len(_MAGIC)
        if bytes(record[:n]) != _MAGIC or len(record) < n + 4:
            raise self._damaged("it does not begin like one", 0)
        (version,) = struct.unpack("<I", record[n : n + 4])
        if version != _VERSION:
            reason = (
                f"a file of elements of version {_VERSION} is needed, this one has version {version}; write it anew"
            )
            raise RecordError(reason, file=self.path, offset=0, stage="read")
        try:
            head = json.loads(bytes(record[n + 4 :]))
        except (ValueError, RecursionError) as error:
            raise self._damaged("its head is no JSON", 0) from error
        if not isinstance(head, dict):
            raise self._damaged("its head is no JSON object", 0)
        return head

    def _damaged(self, reason: str, offset: int | None) -> RecordError:
        what = f"a file of elements is needed, this one is damaged or none: {reason}"
        return RecordError(what, file=self.path, offset=offset, stage="read")


def _identity(cursor: Cursor, slots: dict[int, Any]) -> tuple[Any, int]:
    try:
        kind = cursor.u8()
        if kind == 0:
            slot, position = struct.unpack("<IQ", cursor.take(12))
            return slots[slot], position
        if kind == 1:
            position, n = struct.unpack("<QI", cursor.take(12))
            if n == 0 or n * 12 > cursor.left:
                raise Malformed(f"a batch of {n} rows")
            owners, places = cursor.numbers(n, "I"), cursor.numbers(n, "Q")
            return [(slots[slot], place) for slot, place in zip(owners, places, strict=True)], position
    except KeyError as error:
        raise Malformed(f"no stream has the number {error}") from error
    raise Malformed(f"no identity begins with {kind}")


def _error_to_json(error: DataError) -> dict[str, Any]:
    return {
        "kind": type(error).__name__,
        "reason": error.reason,
        "file": error.file,
        "offset": error.offset,
        "stage": error.stage,
        "unit": error.unit,
    }


def _error_from_json(data: bytes) -> DataError:
    try:
        given = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Malformed("an error is no JSON") from error
    if not isinstance(given, dict):
        raise Malformed("an error is no JSON object")
    kind = getattr(errors, str(given.get("kind")), None)
    known = isinstance(kind, type) and issubclass(kind, DataError)
    file, offset = given.get("file"), given.get("offset")
    made: DataError = (kind if known and kind is not None else DataError)(
        str(given.get("reason")),
        file=file if isinstance(file, str) else None,
        offset=offset if type(offset) is int else None,
        stage=str(given.get("stage")),
        unit=str(given.get("unit")),
    )
    return made
