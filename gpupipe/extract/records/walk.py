"""walk: the headers of a TFRecord file from the front, without its payloads.

The CRC of every length is verified, and damage is where a reader from the front finds it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from crc32c import crc32c

from gpupipe.errors import DataError
from gpupipe.extract.records.crc import mask
from gpupipe.extract.records.framing import HEADER, OVERHEAD, Framer, seek_header, sniff
from gpupipe.extract.storage.files import LOCAL, LocalStorage

__all__ = ["Bad", "Good", "walk_headers"]

SMALL = 8192
"""Records up to this size are walked in blocks of `BLOCK` bytes, larger ones by a read of 12 bytes each."""


BLOCK = 64 << 10


_header = struct.Struct("<QI").unpack_from


class Good(NamedTuple):
    """Whole records, one behind the other.

    Attributes:
        offsets: of their headers, in bytes.
        end: of the last one.
    """

    offsets: list[int]
    end: int


class Bad(NamedTuple):
    """A place where a record should be and none can be read.

    Attributes:
        passing: the file could not be read, or was replaced: trying again may help.
    """

    offset: int
    error: DataError
    passing: bool = False


def walk_headers(
    path: str, *, start: int = 0, first: int | None = None, storage: LocalStorage = LOCAL
) -> Iterator[Good | Bad]:
    """Go through the headers of an uncompressed file; every length is compared with what the file can hold.

    Args:
        path: a local file.
        start: offset of the record to begin with.
        first: its number, for errors; None if it is not known.
        storage: where the file is.

    Yields:
        Runs of whole records, and what is damaged, in the order of the file. Never raises a DataError.
    """
    at, size = start, -1
    try:
        size, tag = storage.size(path)
        read = partial(_read, storage, path, tag)
        alone = 0  # up to here the headers are read one by one
        framer = Framer(path, check_crc=False, first=0 if start == 0 else first)
        length = 0
        while at < size:
            base = at
            try:
                data = read(at, min(BLOCK if length <= SMALL and at >= alone else HEADER, size - at))
            except DataError as error:
                if not error.passing or at < alone or length > SMALL:
                    raise
                alone = at + BLOCK
                continue
            if len(data) < HEADER:
                yield Bad(at, framer.truncated(at, len(data), HEADER))
                return
            offsets, place, length, wrong = _whole_records(data, base, size - base)
            at = base + place
            framer.index += len(offsets)
            if offsets:
                yield Good(offsets, at)
            if wrong == "damaged":
                head = data[place : place + HEADER]
                found, unread = None, 0
                if at or not sniff(head):  # of another format nothing is worth a search
                    found, unread = seek_header(read, at, at + 1, size)
                yield Bad(at, framer.damaged(at, head, None if found is None else found - at, unread))
                at, length = size if found is None else found, 0
            elif wrong == "beyond":
                yield Bad(at, framer.truncated(at, size - at, OVERHEAD + length))
                return
    except DataError as error:
        if size >= 0:  # the record's place, not that of the range that was read
            error.offset = at
        yield Bad(at, error.at(path, at, "read").kept().hiding(), passing=True)


def _whole_records(data: bytes, base: int, limit: int) -> tuple[list[int], int, int, str]:
    """The records whose headers lie in a block.

    Args:
        data: the block, which begins with a header.
        base: its offset in the file.
        limit: bytes from there to the end of the file.

    Returns:
        Their offsets, where in the block the next one begins, the length in the last header, and what is wrong with
        that: "damaged", "beyond" the end of the file, or "".
    """
    offsets: list[int] = []
    place = length = 0
    last = len(data) - HEADER
    while place <= last:
        length, stored = _header(data, place)
        if mask(crc32c(data[place : place + 8])) != stored:
            return offsets, place, length, "damaged"
        end = place + OVERHEAD + length
        if end > limit:
            return offsets, place, length, "beyond"
        offsets.append(base + place)
        place = end
    return offsets, place, length, ""


def _read(storage: LocalStorage, path: str, tag: str, offset: int, n: int) -> bytes:
    return storage.read(path, offset, n, tag)
