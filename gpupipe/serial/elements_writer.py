"""elements_writer: writes a file of elements (`elements_file.py` has the layout)."""

from __future__ import annotations

import json
import os
import struct
import zlib
from array import array
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ..errors import DataError
from ..extract.records.crc import crc32c, mask, masked_crc32c
from ..extract.storage.temporary import create
from ..urls import without_secrets
from .columns import add_columns
from .elements_file import INDEXED, MAGIC, NAMED, VERSION, StreamLike, stored, token_of
from .errors import error_to_json

__all__ = ["ElementsWriter"]

FLUSH = 1 << 20


PART = 1 << 16
"""Elements of one record of the index."""


class ElementsWriter:
    """Writes elements to a new file. No descriptor is held between writes, so thousands of writers may be open.

    Args:
        path: the file, which must not exist; `begin` makes it. Rename it after `finish`.
        head: JSON for the head.
        compression: "" or "GZIP".
        indexed: write an index before the end, 8 bytes an element; not of a compressed file.
        told: write what `finish` is given before the end, where `ElementsReader.check_end` finds it.
    """

    def __init__(
        self, path: str, head: dict[str, Any], compression: str = "", indexed: bool = False, told: bool = False
    ) -> None:
        self.path = path
        self.count = 0
        self._stream = zlib.compressobj(6, zlib.DEFLATED, 31) if compression else None
        self._buffer: list[Any] = []
        self._size = 0
        self._named: dict[int, StreamLike] = {}  # by key
        self._at = 0  # in the file before it is compressed
        self._written = 0  # bytes of the file so far
        self._told = told
        self._offsets: array[int] | None = array("Q") if indexed and not compression else None
        self._streams = array("Q")  # key and offset of each S record
        self._pid = os.getpid()
        text = json.dumps(head).encode()
        self._token = token_of(text)
        self._record([MAGIC, struct.pack("<I", VERSION if self._offsets is None and not told else INDEXED), text])

    def begin(self) -> None:
        """Make the file. Who calls it calls `discard` where an exception ends this or anything later.

        Raises:
            OSError: the file is there already, or cannot be made.
        """
        try:
            create(self.path).close()
        except FileExistsError:
            self._pid = -1  # it is not ours to remove
            raise

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
            stream: stream of the element.
            position: position in that stream.
            rows: for a batch, the (stream, position) of each of its rows.

        Raises:
            PlanTypeError: files cannot hold one of the columns.
            OSError: the file cannot be written.
        """
        if len(self._named) + (1 if rows is None else len(rows)) > NAMED:  # the reader drops the oldest names
            self._named.clear()
        if rows is None:
            identity = struct.pack("<BQQ", 0, self._key(stream), position)
        else:
            keys = [self._key(row) for row, _ in rows]
            n = len(rows)
            identity = struct.pack(f"<BQI{n}Q{n}Q", 1, position, n, *keys, *(row for _, row in rows))
        number = struct.pack("<Q", self.count)
        if self._offsets is not None:
            self._offsets.append(self._at)
        if isinstance(value, DataError):
            self._record([b"H", self._token, number, identity, json.dumps(error_to_json(value)).encode()])
        else:
            parts: list[Any] = [b"E", self._token, number, identity]
            add_columns(value, parts)
            self._record(parts)
        self.count += 1

    def finish(self, told: Any = None) -> None:
        """Write the end, and sync the file to disk.

        Args:
            told: JSON about all elements, if it was announced.
        """
        end = [b"Z", self._token, struct.pack("<Q", self.count)]
        if self._told:
            self._end_member()
            end.append(struct.pack("<Q", self._written))
            self._record([b"I", self._token, b"\2", json.dumps(told).encode()])
            self._end_member()
        if self._offsets is not None:
            end.append(struct.pack("<Q", self._at))
            for kind, numbers, part in ((b"\0", self._offsets, PART), (b"\1", self._streams, 2 * PART)):
                for start in range(0, len(numbers), part):
                    some = np.array(numbers[start : start + part], "<u8").tobytes()
                    self._record([b"I", self._token, kind, some])
        if self._stream is not None and self._told:
            self._put(stored(framed(end)))
        else:
            self._record(end)
            self._end_member()
        self._flush()
        with open(self.path, "r+b", buffering=0) as file:
            os.fsync(file.fileno())

    def discard(self) -> None:
        """Remove the file. In a forked child, do nothing: the file is the parent's."""
        if os.getpid() != self._pid:
            return
        self._buffer, self._size = [], 0
        with suppress(FileNotFoundError):
            os.remove(self.path)

    def _key(self, stream: StreamLike) -> int:
        """Return the key of a stream, whose name is written before its first use."""
        known = self._named.get(stream.key)
        if known is not stream:
            if known is None or (known.name, known.unit) != (stream.name, stream.unit):
                unit, name = (x.encode(errors="surrogateescape") for x in (stream.unit, without_secrets(stream.name)))
                if self._offsets is not None:
                    self._streams.extend((stream.key, self._at))
                self._record([b"S", self._token, struct.pack("<QH", stream.key, len(unit)), unit, name])
            self._named[stream.key] = stream
        return stream.key

    def _record(self, parts: list[Any]) -> None:
        data = framed(parts)
        self._at += len(data)
        self._put(data if self._stream is None else self._stream.compress(data))
        if self._size >= FLUSH:
            self._flush()

    def _end_member(self) -> None:
        """End a part of a compressed file that is read without those before it."""
        if self._stream is not None:
            self._put(self._stream.flush())
            self._stream = zlib.compressobj(6, zlib.DEFLATED, 31)

    def _put(self, data: bytes) -> None:
        self._buffer.append(data)
        self._size += len(data)
        self._written += len(data)

    def _flush(self) -> None:
        if os.getpid() != self._pid:
            raise DataError("only the process that created this file can write to it, got a forked child")
        with open(self.path, "r+b", buffering=0) as file:  # a removed file stays removed
            file.seek(0, os.SEEK_END)
            for data in self._buffer:
                view = memoryview(data)
                while len(view):
                    view = view[file.write(view) or 0 :]
        self._buffer, self._size = [], 0


def framed(parts: list[Any]) -> bytes:
    """A record with its length and CRCs. The parts are copied: they are views of arrays that the user may change."""
    length = struct.pack("<Q", sum(map(len, parts)))
    crc = 0
    for part in parts:
        crc = crc32c(part, crc)
    return b"".join([length, struct.pack("<I", masked_crc32c(length)), *parts, struct.pack("<I", mask(crc))])
