"""elements_index: the elements of a file by their number, for `load` (`elements_file.py` has the layout).

The index is read as a whole, checked, and kept in memory like those of TFRecord files: 8 bytes an element.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..classes import dataclass
from ..errors import DataError, RecordError, Unit
from ..extract.records.crc import footer_at, header_at, masked_crc32c
from ..extract.records.index import Indexes, version_of
from ..extract.storage.files import LOCAL
from .elements_file import END, INDEXED, LEAST, MAGIC, TOKEN, Saved, read_record, stream_record
from .elements_writer import PART
from .structures import Malformed, json_object

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ELEMENTS", "ElementsByIndex", "ElementsIndex", "elements_index"]

AT_ONCE = 1 << 20
"""Bytes that are read at a time of elements that follow one another."""


NAMES = 1 << 16
"""Streams whose names are remembered."""


@dataclass(frozen=True, slots=True)
class ElementsIndex:
    """Where the elements of a file are.

    Attributes:
        offsets: of the record of each element, and the end of the last one.
        streams: sorted keys of the streams, and the offsets of their names, uint64[2, N].
        token: what all records of the file start with, after their first byte.
        tag: of this version of the file.
        head: of the file.
    """

    offsets: array[int]
    streams: NDArray[np.uint64]
    token: bytes
    tag: str
    head: dict[str, Any]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        """Its size in memory, in bytes."""
        return self.offsets.buffer_info()[1] * self.offsets.itemsize + self.streams.nbytes


ELEMENTS: Indexes[ElementsIndex] = Indexes()
"""The indexes in memory."""


def elements_index(path: str) -> ElementsIndex:
    """The index of a file, from memory or read now.

    Raises:
        MissingFileError: there is no such file.
        RecordError: it has no index, or a damaged one.
    """
    version = version_of(path)
    found = None if version is None else ELEMENTS.get(path, version)
    if found is None:
        try:
            found = _index(path, *LOCAL.size(path))
        except Malformed as error:
            reason = (
                f"an index of the elements is needed, this file has none or a damaged one: {error}; read it in order"
            )
            raise RecordError(reason, file=path, stage="read") from error
        if version is not None and version == version_of(path):
            ELEMENTS.put(path, version, found)
    return found


def _index(path: str, size: int, tag: str) -> ElementsIndex:
    def take(offset: int, most: int) -> memoryview:
        length = _length(LOCAL.read(path, offset, 12, tag)) if offset + 16 <= size else size
        if length > most or offset + length + 16 > size:
            raise Malformed(f"a record at offset {offset} has {length} bytes")
        return _checked(memoryview(LOCAL.read(path, offset, length + 16, tag)))

    head = take(0, size)
    if bytes(head[: len(MAGIC) + 4]) != MAGIC + struct.pack("<I", INDEXED):
        raise Malformed("its head is another")
    fields = json_object(head[len(MAGIC) + 4 :])
    at, end = len(head) + 16, size - END - 8
    if end < at:
        raise Malformed("it is too short")
    last = take(end, size)
    token = bytes(last[1 : 1 + TOKEN])
    if bytes(last[:1]) != b"Z" or len(last) != END - 8:
        raise Malformed("it ends without its last record")
    count, first = struct.unpack("<QQ", last[1 + TOKEN :])
    offsets, streams, position = array("Q"), array("Q"), first
    while position < end:
        part = take(position, 2 + TOKEN + 16 * PART)
        kind, start = bytes(part[:1]) + bytes(part[1 + TOKEN : 2 + TOKEN]), 2 + TOKEN
        if kind not in (b"I\0", b"I\1") or bytes(part[1 : 1 + TOKEN]) != token or (len(part) - start) % 8:
            raise Malformed(f"another record is at offset {position}")
        numbers = np.frombuffer(part, "<u8", offset=start).astype(np.uint64)
        (streams if kind == b"I\1" else offsets).frombytes(numbers.tobytes())
        position += len(part) + 16
    offsets.append(first)
    found, names = np.frombuffer(offsets, np.uint64), np.frombuffer(streams, np.uint64)
    if position != end or len(found) != count + 1 or len(names) % 2:
        raise Malformed(f"{count} elements are wanted, it has {len(found) - 1}")
    ascending = bool((found[1:] > found[:-1]).all()) and first <= end
    if not ascending or (count and (found[1:] - found[:-1]).min() < LEAST):
        raise Malformed("its offsets make no sense")
    pairs = names.reshape(-1, 2)
    return ElementsIndex(offsets, pairs[np.lexsort(pairs.T[::-1])].T.copy(), token, tag, fields)


def _length(header: bytes | memoryview) -> int:
    """Read the length of a record.

    Raises:
        Malformed: its CRC does not match.
    """
    length, crc = header_at(header)
    if masked_crc32c(header[:8]) != crc:
        raise Malformed("the CRC of a length does not match")
    return int(length)


def _checked(framed: memoryview) -> memoryview:
    """Take the payload out of a record, behind which other bytes may follow.

    Raises:
        Malformed: it does not fit, or a CRC does not match.
    """
    length = _length(framed[:12])
    if length + 16 > len(framed):
        raise Malformed(f"a record of {length} bytes in {len(framed)}")
    payload = framed[12 : 12 + length]
    if masked_crc32c(payload) != footer_at(framed, 12 + length)[0]:
        raise Malformed("the CRC of a record does not match")
    return payload


class ElementsByIndex:
    """Reads the elements of a file in any order.

    Args:
        path: the file.
        make_stream: makes a stream of its key, name and unit.

    Raises:
        MissingFileError: there is no such file.
        RecordError: it has no index, or a damaged one.
    """

    def __init__(self, path: str, make_stream: Callable[[int, str, Unit], Any]) -> None:
        self._path = path
        self._make = make_stream
        self._index = elements_index(path)
        self._known: dict[tuple[int, int], Any] = {}

    def __len__(self) -> int:
        return len(self._index)

    @property
    def head(self) -> dict[str, Any]:
        """The head of the file."""
        return self._index.head

    def read(self, numbers: Sequence[int]) -> Iterator[Saved]:
        """Read the elements with these numbers. A damaged one is a RecordError in its place: (error, None, offset)."""
        offsets = self._index.offsets
        done = 0
        while done < len(numbers):
            first = numbers[done]
            start, last = offsets[first], first
            done += 1
            while done < len(numbers) and numbers[done] == last + 1 and offsets[last + 2] - start <= AT_ONCE:
                last += 1
                done += 1
            try:
                data: Any = memoryview(LOCAL.read(self._path, start, offsets[last + 1] - start, self._index.tag))
            except DataError as error:
                data = error
            for number in range(first, last + 1):
                at = offsets[number]
                try:
                    if isinstance(data, DataError):
                        raise data.again()
                    yield self._element(data[at - start : offsets[number + 1] - start], number)
                except DataError as error:
                    yield error, None, at
                except Malformed as error:
                    text = f"a file of elements is needed, this one is damaged or is not one: {error}"
                    yield RecordError(text, file=self._path, offset=at, stage="read"), None, at

    def _element(self, framed: memoryview, number: int) -> Saved:
        record = _checked(framed)
        if bytes(record[1 : 1 + TOKEN]) != self._index.token:
            raise Malformed("the record belongs to another file")
        before = self._index.offsets[number]
        found, element = read_record(record, lambda key: self._stream(key, before))
        if element is None or found != number:
            raise Malformed(f"element {number} was expected, this is number {found}")
        return element

    def _stream(self, key: int, before: int) -> Any:
        """Return the stream of a key, with the last name that was written for it before an offset."""
        keys, offsets = self._index.streams
        first, end = np.searchsorted(keys, np.uint64(key)), np.searchsorted(keys, np.uint64(key), "right")
        i = bisect_left(offsets, before, int(first), int(end)) - 1
        at = int(offsets[i]) if i >= first else -1
        known = self._known.get((key, at))
        if known is None:
            if len(self._known) >= NAMES:
                self._known.clear()
            known = self._known[key, at] = self._make(key, *self._name(key, at))
        return known

    def _name(self, key: int, at: int) -> tuple[str, Unit]:
        """Read the name and unit of a stream; those of the file where they are damaged."""
        path, index = self._path, self._index
        try:
            if at >= 0:
                length = min(_length(LOCAL.read(path, at, 12, index.tag)), index.offsets[-1])
                record = _checked(memoryview(LOCAL.read(path, at, length + 16, index.tag)))
                if bytes(record[: 1 + TOKEN]) == b"S" + index.token:
                    found, name, unit = stream_record(record)
                    if found == key:
                        return name, unit
        except (DataError, Malformed):
            pass  # the element has its own key, so this costs only a name in messages
        return path, "index"
