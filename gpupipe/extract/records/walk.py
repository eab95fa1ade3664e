"""walk: the headers of a TFRecord file from front to back, without its payloads.

The CRC of every length is verified, and damage is reported where a sequential reader would find it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpupipe.errors import DataError
from gpupipe.extract.records.crc import crc32c, header_at, mask
from gpupipe.extract.records.framing import HEADER, OVERHEAD, Framer, seek_header, sniff
from gpupipe.extract.storage.files import LOCAL, OpenFile, Storage

__all__ = ["Bad", "Good", "walk_headers"]

SMALL = 8192
"""Headers of records up to this size are read in blocks of `BLOCK` bytes, of larger ones 12 bytes at a time."""


BLOCK = 64 << 10


class Good(NamedTuple):
    """Complete records, one after another.

    Attributes:
        offsets: of their headers, in bytes.
        end: offset after the last one.
    """

    offsets: list[int]
    end: int


class Bad(NamedTuple):
    """An offset where a record should start but cannot be read.

    Attributes:
        passing: the file could not be read, or was replaced: a retry may help.
    """

    offset: int
    error: DataError
    passing: bool = False


def walk_headers(
    path: str,
    *,
    start: int = 0,
    first: int | None = None,
    storage: Storage = LOCAL,
    file: OpenFile | None = None,
) -> Iterator[Good | Bad]:
    """Read the headers of an uncompressed file; every length is compared with what the file can hold.

    At the end its version is compared with the one that was opened.

    Args:
        path: the file.
        start: offset of the record to start with.
        first: its index, for errors; None if it is unknown.
        storage: the storage of the file.
        file: the version of the file that is read; None: the one that it has now.

    Yields:
        Runs of complete records, and what is damaged, in file order. Never raises a DataError.
    """
    at, size = start, -1
    try:
        file = OpenFile(storage, path) if file is None else file
        size, read = file.size, file.read
        alone = 0  # headers before this offset are read one by one
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
                yield Bad(at, framer.truncated(at, len(data), data))
                break
            offsets, position, length, wrong = _whole_records(data, base, size - base)
            at = base + position
            if length > SMALL and at < size:
                storage.ahead(path, at, HEADER)
            framer.index += len(offsets)
            if offsets:
                yield Good(offsets, at)
            if wrong == "damaged":
                head = data[position : position + HEADER]
                found, unread = None, 0
                if at or not sniff(head):  # a file of another format is not searched
                    found, unread = seek_header(read, at, at + 1, size)
                yield Bad(at, framer.damaged(at, head, None if found is None else found - at, unread))
                at, length = size if found is None else found, 0
            elif wrong == "beyond":
                yield Bad(at, framer.truncated(at, size - at, data[position:]))
                break
        at = size
        file.confirm()
    except DataError as error:
        if size >= 0:  # the offset of the record, not of the range that was read
            error.offset = at
        yield Bad(at, error.at(path, at, "read").kept().hiding(), passing=True)


def _whole_records(data: bytes, base: int, limit: int) -> tuple[list[int], int, int, str]:
    """Find the records whose headers are in a block.

    Args:
        data: the block, which starts with a header.
        base: its offset in the file.
        limit: bytes from there to the end of the file.

    Returns:
        Their offsets, the position in the block of the next one, the length in the last header, and what is wrong with
        that header: "damaged", "beyond" the end of the file, or "".
    """
    offsets: list[int] = []
    position = length = 0
    last = len(data) - HEADER
    while position <= last:
        length, stored = header_at(data, position)
        if mask(crc32c(data[position : position + 8])) != stored:
            return offsets, position, length, "damaged"
        end = position + OVERHEAD + length
        if end > limit:
            return offsets, position, length, "beyond"
        offsets.append(base + position)
        position = end
    return offsets, position, length, ""
