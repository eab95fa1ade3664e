"""elements_file: elements with their identities in a file, for `cache`, `snapshot`, `save` and `load`.

The file is framed like a TFRecord file: every record has its length and two CRCs, and the reader of TFRecord files
finds damage. The records are, by their first byte,

    G   the head: the rest of the magic, u32 version, JSON: for caches, the element's type and a key of the chain
    S   the name of a stream: token, u64 key, u16 length of the unit, unit, name
    E   an element: token, u64 number, its identity, u16 number of columns, the columns (see `columns`)
    H   a hole: token, u64 number, its identity, JSON of its error
    I   a part of the index, in files that have one, before the end: token, u8 0, u64 offset of the record of each of up
        to 65536 elements; or token, u8 1, u64 key and u64 offset of each of as many S records; or, in files of caches,
        token, u8 2, JSON of all elements
    Z   the end: token, u64 number of elements and holes, and in files with an index the u64 offset of its first part. A
        file without it is incomplete. In a compressed file with an index, the index and the end are gzip members of
        their own, the end not compressed, and the offset is that of the member

An identity is u8 0, u64 key of the stream, u64 position; or, for a batch, u8 1, u64 position, u32 rows, u64 key of
each row, u64 position of each row. All numbers are little-endian; nothing is pickled.

Damage costs only the elements that it hits. Elements are numbered, so the reader knows how many are missing, and
where; each element holds its own key, so a lost S record costs only a name in messages. An element may contain another
such file, in which the search for the next good record may end: the token, a hash of the head, tells its records apart.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ..errors import DataError, MissingFileError, RecordError, Unit, unit_of
from ..extract.records.crc import masked_crc32c
from ..extract.records.tfrecord import RecordReader
from ..extract.storage.files import LocalStorage
from ..log import logger
from .columns import Cursor, read_columns
from .errors import error_from_json
from .structures import Malformed, json_object

__all__ = ["ElementsReader", "Saved", "StreamLike", "read_record", "stored", "stream_record", "token_of"]

MAGIC = b"GPUPIPE elements\0"


VERSION, INDEXED = 2, 3
"""The version of files without and with an index."""


TOLD = 1 << 25
"""Most bytes of what a file says of all its elements."""


NAMED = 1 << 18
"""Streams whose names the reader remembers."""


TOKEN = 4


MEMBER = 15
"""Bytes before the data of a gzip member that `stored` made."""


END = 12 + 1 + TOKEN + 8 + 4  # bytes of the last record; 8 more with an index


LEAST = 12 + 1 + TOKEN + 8 + 17 + 2 + 4  # bytes of the smallest element in the file


_NOTED = 100  # damaged records in a row whose errors are kept


Saved = tuple["tuple[Any, ...] | DataError", "Any | list[tuple[Any, int]]", int]
"""(columns or error, stream or the (stream, position) of each row of a batch, position).

A lost element is (error, None, an offset in the damaged bytes).
"""


class StreamLike(Protocol):
    """A stream: its key, its name and the unit of its positions."""

    key: int
    name: str
    unit: Unit


class ElementsReader:
    """Reads a file of elements from start to end, in blocks, so that large files need little memory.

    The file is opened once: a file that replaces it is read by the next reader. A file that shrinks is an error.

    Args:
        path: the file.
        compression: "" or "GZIP".
        head_needed: whether a damaged head is an error; otherwise it is damage like any other, and `head` is empty.

    Raises:
        MissingFileError: there is no such file.
        RecordError: it is not a file of elements, or has another version; every method raises it for a damaged file.
    """

    def __init__(self, path: str, compression: str = "", head_needed: bool = True) -> None:
        self.path = path
        self.compression = compression
        self._storage = LocalStorage(limit=1)  # not shared, so that the descriptor stays the same
        self._reader = RecordReader(path, compression=compression, storage=self._storage)
        self._records = iter(self._reader)
        self._token: bytes | None = None  # if the head is damaged, that of the first good record
        self._broken: list[RecordError] = []  # damage since the last good element
        self._unread = False  # a read failed for good, which is not damage
        self._indexed = False
        self.head = self._head(head_needed)

    def check_end(self) -> Any:
        """Check that the last record is the end, which costs one read. A compressed file without index is not checked.

        Returns:
            What the file says of all its elements; None if it does not.

        Raises:
            RecordError: the file has another end, or cannot be read.
        """
        if self.compression and not self._indexed:
            return None
        size, tag = self._storage.size(self.path)
        end = END + 8 * self._indexed
        start = size - len(stored(bytes(end))) if self.compression else size - end

        def read(start: int, stop: int) -> bytes:
            try:
                return self._storage.read(self.path, start, stop - start, tag)
            except MissingFileError:
                raise
            except DataError as error:
                raise self._damaged(str(error), size) from error

        data = whole = read(max(start, 0), size)
        if self.compression:
            data = whole[MEMBER : MEMBER + end]
        crc = struct.pack("<I", masked_crc32c(data[12:-4]))
        right = data[:8] == struct.pack("<Q", end - 16) and data[12:13] == b"Z" and data[-4:] == crc
        if not right or (self.compression and whole != stored(data)):
            raise self._damaged("it ends without its last record", max(start, 0))
        if not self._indexed:
            return None
        (first,) = struct.unpack("<Q", data[-12:-4])
        if not 0 <= start - first <= TOLD:
            raise self._damaged("what it says of its elements is not where it should be", start)
        return self._told(read(first, start), first)

    def _told(self, data: bytes, offset: int) -> Any:
        try:
            if self.compression:
                data = zlib.decompressobj(31).decompress(data, TOLD)
            if len(data) < 16 or data[12:13] != b"I":
                raise Malformed("another record is there")
            if data[17:18] != b"\2":
                return None
            if data[-4:] != struct.pack("<I", masked_crc32c(data[12:-4])):
                raise Malformed("its CRC does not match")
            return json.loads(data[18:-4])
        except (Malformed, ValueError, RecursionError, zlib.error) as error:
            raise self._damaged(f"what it says of its elements: {error}", offset) from error

    def elements(
        self, make_stream: Callable[[int, str, Unit], Any], on_damage: Callable[[], None] = lambda: None
    ) -> Iterator[Saved]:
        """Iterate over the elements once. A lost element is a RecordError in its place: (error, None, offset).

        Args:
            make_stream: makes a stream of its key, name and unit.
            on_damage: called when damage is found, before any element after it is given.

        Raises:
            RecordError: the file ends too early, or data follows its end, so lost elements cannot be counted.
        """
        expected = 0
        names = _Names(os.path.basename(self.path), make_stream)
        if self._broken:  # the head
            on_damage()
        for offset, record in self._records:
            try:
                found = self._read(record, expected, names)
            except Malformed as error:
                self._note(str(error), offset, on_damage)
                continue
            if found is None:
                continue
            number, element = found
            if number != expected or self._broken:
                yield from self._lost(number - expected, offset, on_damage)
            if element is None:
                break
            expected = number + 1
            yield element
        else:
            first = self._broken[0] if self._broken else None
            reason = f"it ends after {expected} elements without its last record"
            if first is not None:
                reason = f"{reason}; {first.reason}"
            ended = self._damaged(reason, None if first is None else first.offset)
            ended.lost = self._unread
            raise ended from first
        for offset, record in self._records:
            if (
                isinstance(record, DataError) and record.lost
            ):  # it was written to meanwhile, or its compression is cut off
                damaged = self._damaged(record.reason, offset)
                damaged.lost = True
                raise damaged from record
            raise self._damaged("data follows its last record", offset)

    def _read(self, record: Any, expected: int, names: _Names) -> tuple[int, Saved | None] | None:
        """Read one record.

        Returns:
            The number of an element, and the element; at the end, how many there were, and None. None for the name of
            a stream.

        Raises:
            Malformed: the record is damaged.
        """
        if isinstance(record, DataError):
            self._unread = self._unread or record.lost
            raise Malformed(record.reason)
        self._check_token(bytes(record[1 : 1 + TOKEN]))
        if record[:1] == b"S":
            names.add(*stream_record(record))
            return None
        if record[:1] == b"I":
            return None
        number, element = read_record(record, names.stream)
        if number < expected:
            raise Malformed(f"element {expected} was expected, this is number {number}")
        return number, element

    def _check_token(self, token: bytes) -> None:
        if self._token is None:
            self._token = token
        elif token != self._token:
            raise Malformed("the record belongs to another file")

    def _note(self, reason: str, offset: int, on_damage: Callable[[], None]) -> None:
        """Note damage until the number of the next good element tells how many were lost."""
        on_damage()
        if len(self._broken) < _NOTED:
            self._broken.append(RecordError(reason, file=self.path, offset=offset, stage="read"))

    def _lost(self, count: int, offset: int, on_damage: Callable[[], None]) -> Iterator[Saved]:
        """Give an error for each of the `count` elements missing before `offset`."""
        broken, self._broken = self._broken, []
        if count == 0:
            logger.warning("%s; no element is lost", broken[0])
            return
        on_damage()
        start = offset if not broken or broken[0].offset is None else broken[0].offset
        if not broken or count > (offset - start) // LEAST:  # so many elements do not fit the damaged bytes
            yield (
                self._damaged(f"it should have another number of elements, {count} are missing", start),
                None,
                start,
            )
            return
        for i in range(count):
            error = broken[min(i, len(broken) - 1)]
            yield self._damaged(error.reason, error.offset), None, start + i

    def close(self) -> None:
        """Close the file."""
        self._reader.close()
        self._storage.close()

    def _head(self, needed: bool) -> dict[str, Any]:
        offset, record = next(self._records, (0, None))
        if record is None:
            raise self._damaged("it is empty", 0)
        if isinstance(record, MissingFileError):
            raise record
        if isinstance(record, DataError):
            self._unread = record.lost
            if needed or record.lost:
                damaged = self._damaged(record.reason, offset)
                damaged.lost = record.lost
                raise damaged from record
            self._note(f"its head: {record.reason}", offset, lambda: None)
            return {}
        n = len(MAGIC)
        if bytes(record[:n]) != MAGIC or len(record) < n + 4:
            raise self._damaged("it does not start like one", 0)
        (version,) = struct.unpack("<I", record[n : n + 4])
        if version not in (VERSION, INDEXED):
            reason = f"a file of elements needs version {VERSION} or {INDEXED}, got version {version}; write it again"
            raise RecordError(reason, file=self.path, offset=0, stage="read")
        self._indexed = version == INDEXED
        text = bytes(record[n + 4 :])
        try:
            head = json_object(text)
        except Malformed as error:
            raise self._damaged(f"its head: {error}", 0) from error
        self._token = token_of(text)
        return head

    def _damaged(self, reason: str, offset: int | None) -> RecordError:
        text = f"a file of elements is needed, this one is damaged or is not one: {reason}"
        return RecordError(text, file=self.path, offset=offset, stage="read")


class _Names:
    """The streams of a file by their keys; the writer writes each name once.

    Args:
        file: the name of streams whose own names are damaged.
        make: makes a stream of its key, name and unit.
    """

    def __init__(self, file: str, make: Callable[[int, str, Unit], Any]) -> None:
        self._file = file
        self._make = make
        self._streams: dict[int, Any] = {}

    def add(self, key: int, name: str, unit: Unit) -> Any:
        """Make a stream; if there are too many, drop the oldest, as the writer expects."""
        self._streams.pop(key, None)
        if len(self._streams) >= NAMED:
            del self._streams[next(iter(self._streams))]
        made = self._streams[key] = self._make(key, name, unit)
        return made

    def stream(self, key: int) -> Any:
        """Return the stream of a key."""
        found = self._streams.get(key)
        return self.add(key, self._file, "index") if found is None else found


def stream_record(record: Any) -> tuple[int, str, Unit]:
    """Read the key, the name and the unit of a stream.

    Raises:
        Malformed: the record is damaged.
    """
    cursor = Cursor(memoryview(record)[1 + TOKEN :])
    key, n = struct.unpack("<QH", cursor.take(10))
    unit, name = bytes(cursor.take(n)), bytes(cursor.take(cursor.left))
    return key, name.decode(errors="surrogateescape"), unit_of(unit.decode(errors="replace"))


def read_record(record: Any, stream_of: Callable[[int], Any]) -> tuple[int, Saved | None]:
    """Read an element or the end.

    Args:
        record: the record.
        stream_of: returns the stream of a key.

    Returns:
        The number of the element, and the element; at the end, how many there were, and None.

    Raises:
        Malformed: the record is damaged.
    """
    kind, cursor = bytes(record[:1]), Cursor(memoryview(record)[1 + TOKEN :])
    if kind not in (b"E", b"H", b"Z"):
        raise Malformed(f"no record starts with {kind!r}")
    number = cursor.u64()
    element: Saved | None = None
    if kind != b"Z":
        where, position = _identity(cursor, stream_of)
        value = read_columns(cursor) if kind == b"E" else error_from_json(json_object(cursor.take(cursor.left)))
        element = value, where, position
    elif cursor.left:  # where the index starts
        cursor.u64()
    if cursor.left:
        raise Malformed(f"{cursor.left} bytes are left over")
    return number, element


def token_of(head: bytes) -> bytes:
    """The bytes that tell the records of a file apart from those of one that an element contains."""
    return hashlib.blake2b(head, digest_size=TOKEN).digest()


def _identity(cursor: Cursor, stream_of: Callable[[int], Any]) -> tuple[Any, int]:
    kind = cursor.u8()
    if kind == 0:
        key, position = struct.unpack("<QQ", cursor.take(16))
        return stream_of(key), position
    if kind == 1:
        position, n = struct.unpack("<QI", cursor.take(12))
        if n == 0 or n * 16 > cursor.left:
            raise Malformed(f"a batch has {n} rows")
        keys, positions = cursor.numbers(n), cursor.numbers(n)
        return [(stream_of(key), row) for key, row in zip(keys, positions, strict=True)], position
    raise Malformed(f"no identity starts with {kind}")


def stored(data: bytes) -> bytes:
    """A gzip member that holds less than 64 KB as they are, and so has a known size."""
    block = b"\1" + struct.pack("<HH", len(data), ~len(data) & 0xFFFF)
    return b"\x1f\x8b\x08" + bytes(6) + b"\xff" + block + data + struct.pack("<II", zlib.crc32(data), len(data))
