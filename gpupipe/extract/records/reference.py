"""reference: the location of a record, instead of its bytes.

A shuffle buffer of 10,000 records of 110 KB is 1.1 GB; of references it is 2 MB.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, pairwise, repeat
from typing import Any, NamedTuple, TypeVar

import numpy as np

from gpupipe.errors import DataError, RecordError
from gpupipe.extract.records.crc import footer_at, header_at, masked_crc32c
from gpupipe.extract.records.framing import FOOTER, HEADER, OVERHEAD, WRONG_PAYLOAD
from gpupipe.extract.records.index import INDEXES, MEMORY, RecordIndex, find_index, keep_index
from gpupipe.extract.records.walk import Bad, walk_headers
from gpupipe.extract.storage.blocks import Blocks
from gpupipe.extract.storage.files import LOCAL, LocalStorage, OpenFile, Version
from gpupipe.extract.storage.longest import buffer_of, longest, too_long
from gpupipe.extract.storage.sharing import handed_over

__all__ = ["Extent", "HeaderWalker", "Reference", "indexed_elements", "read_ahead", "read_many", "reference_at"]

_blocks = Blocks(1 << 20)


_SMALL = 64 << 10  # bytes that allocators reuse without a page fault; a whole block would stay in use for them


_AT_ONCE = 4096  # references that are made in one batch


_T = TypeVar("_T")


class Reference(NamedTuple):
    """One record of an uncompressed local file.

    Attributes:
        path: the file.
        offset: of the record's header, in bytes.
        length: of the payload, in bytes.
        tag: of the version of the file that it was made for; None reads any.
    """

    path: str
    offset: int
    length: int
    tag: str | None = None

    def read(self, check_crc: bool = True, storage: LocalStorage = LOCAL) -> bytes:
        """Read the payload, with one `pread` and another for its CRC.

        Raises:
            RecordError: the file is too short, was replaced, or the CRC does not match.
            MissingFileError: the file is gone.
        """
        at = self.offset + HEADER
        if self.length > longest():
            raise too_long(self.path, self.offset, self.length)
        try:
            payload = storage.read(self.path, at, self.length, self.tag)
            if not check_crc:
                return payload
            # 2 us; slicing it off would copy the payload
            footer = storage.read(self.path, at + self.length, FOOTER, self.tag)
        except DataError as error:
            error.offset = self.offset
            raise
        if masked_crc32c(payload) != footer_at(footer)[0]:
            raise _damaged(self, storage)
        return payload


class Extent(NamedTuple):
    """Bytes of an uncompressed local file that no checksum covers: the payload of a member of an archive.

    Attributes:
        path: the file.
        offset: in bytes.
        length: in bytes.
        element: the position of the element that they belong to, for errors.
        tag: of the version of the file that it was made for; None reads any.
    """

    path: str
    offset: int
    length: int
    element: int
    tag: str | None = None

    def read(self, check_crc: bool = True, storage: LocalStorage = LOCAL) -> bytes:
        """Read the bytes; there is no CRC to check.

        Raises:
            RecordError: the file is too short, or was replaced.
            MissingFileError: the file is gone.
        """
        if self.length > longest():
            raise too_long(self.path, self.element, self.length, "a member")
        try:
            return storage.read(self.path, self.offset, self.length, self.tag)
        except DataError as error:
            error.offset = self.element
            raise


def reference_at(path: str, offset: int, storage: LocalStorage = LOCAL) -> Reference:
    """Make the reference to the record at `offset`; the 12 bytes of its header are read.

    Raises:
        RecordError: no record starts there: the CRC of its length does not match, or the record exceeds the file.
        MissingFileError: the file is gone.
    """
    tag = storage.tag_of(path)
    head = storage.read(path, offset, HEADER, tag)
    length, stored = header_at(head)
    if masked_crc32c(head[:8]) != stored:
        reason = "no record starts here: the CRC of its length does not match"
        raise RecordError(reason, file=path, offset=offset, stage="read")
    storage.check(path, offset + HEADER, length + FOOTER, tag)
    return Reference(path, offset, length, tag)


def read_ahead(references: Iterable[Reference | Extent], storage: LocalStorage = LOCAL) -> None:
    """Have the system read the payloads of several records from the disk at once, before `read_many` needs them.

    A disk that is asked for one record at a time has nothing to do while that is looked at.
    """
    for reference in references:
        storage.ahead(reference.path, reference.offset, reference.length + OVERHEAD)


def in_memory(reference: Reference | Extent, storage: LocalStorage = LOCAL) -> bool | None:
    """Whether reading a payload waits for no disk, by its middle; None if the system cannot tell."""
    return storage.in_memory(reference.path, reference.offset, reference.length + OVERHEAD)


def read_many(
    references: Sequence[Reference | Extent], check_crc: bool = True, storage: LocalStorage = LOCAL
) -> list[memoryview | bytes | DataError]:
    """Read the payloads of several records or members into one buffer, which is reused once no view of it is left.

    A record costs one `preadv`, of its payload and CRC, and no page fault: for 110 KB a third of the time that
    `Reference.read` takes with fresh memory for each record.

    Returns:
        For each reference a read-only view of its payload (without the GIL its bytes), or the error of reading it.
    """
    out: list[memoryview | bytes | DataError] = []
    block, at = memoryview(b""), 0
    most = longest()
    left = sum([one.length for one in references if one.length <= most]) + FOOTER * len(references)
    readinto = storage.readinto
    for reference in references:
        length = reference.length
        start, size, element = reference.offset, length, reference.offset
        if type(reference) is Reference:
            start, size = start + HEADER, length + FOOTER
        elif type(reference) is Extent:
            element = reference.element
        end = at + size
        try:
            if length > most:
                end, left = at, left + length
                raise too_long(reference.path, element, length)
            if end > len(block):
                # Before memory is allocated: a shorter file may have replaced this one, or the reference is wrong.
                storage.check(reference.path, start, size, reference.tag)
                fits = left > _SMALL and size <= _blocks.size
                block = _blocks.take() if fits else buffer_of(max(size, left), reference.path, start)
                at, end = 0, size
            readinto(reference.path, start, block[at:end], reference.tag)
            payload = block[at : at + length].toreadonly()
            if (
                check_crc
                and type(reference) is Reference
                and masked_crc32c(payload) != footer_at(block, at + length)[0]
            ):
                raise _damaged(reference, storage)
            out.append(handed_over(payload))
        except DataError as error:
            error.offset = element
            out.append(error.kept())
        at = end
        left -= length + FOOTER  # as if all had one: it only bounds what is allocated
    return out


def _damaged(reference: Reference, storage: LocalStorage) -> RecordError:
    """Make the error for a wrong CRC: the payload is damaged, or the file has changed since its headers were read.

    Raises:
        DataError: the file cannot be read any more, or was written to.
    """
    path, offset, tag = reference.path, reference.offset, reference.tag
    if tag is not None:
        storage.confirm(path, tag)
    reason = WRONG_PAYLOAD
    head = storage.read(path, offset, HEADER, tag)
    length, stored = header_at(head)
    if length != reference.length or masked_crc32c(head[:8]) != stored:
        INDEXES.distrust(path)
        reason = (
            "no record of this length starts here any more: the file was changed after its headers were read, but its "
            "size and time were not; start a new iterator, and write new files beside the old ones"
        )
    return RecordError(reason, file=path, offset=offset, stage="read")


class HeaderWalker:
    """Iterates over (offset, Reference) of an uncompressed local TFRecord file without reading its payloads.

    The CRC of every length is verified; a damaged one and truncation are (offset, DataError), as in `RecordReader`.
    If there is an index of this version of the file, nothing is read; a complete iteration of an intact file keeps one.

    Args:
        path: a local file.
        start: offset of the record to start with.
        first: its index, for errors; None if it is unknown.
        storage: the storage of the file.
        where: where indexes are kept, see `record_index`.
    """

    def __init__(
        self,
        path: str,
        *,
        start: int = 0,
        first: int | None = None,
        storage: LocalStorage = LOCAL,
        where: str = MEMORY,
    ) -> None:
        self.path = path
        self.start = start
        self._first = first
        self._storage = storage
        self._where = where

    def __iter__(self) -> Iterator[tuple[int, Reference | DataError]]:
        return ((offset, item) for (item,), _, offset in self.rows(None))

    def rows(self, stream: _T) -> Iterator[tuple[tuple[Reference | DataError], _T, int]]:
        """Iterate over elements ((Reference,), stream, offset), made 4096 at a time if there is an index.

        A damaged record is ((DataError,), stream, offset).
        """
        try:
            file = OpenFile(self._storage, self.path)  # the storage drops what it has open of an earlier version
        except DataError as error:
            return iter([((error.at(self.path, self.start, "read").kept().hiding(),), stream, self.start)])
        version = Version.of_tag(file.tag)
        known = find_index(self.path, version, self._where)
        if known is None:
            return (((item,), stream, offset) for offset, item in self._walked(file, version))
        first = known.find(self.start) if self.start else 0
        return chain(indexed_elements(known, self.path, stream, first), self._changed(file, stream))

    def _changed(self, file: OpenFile, stream: _T) -> Iterator[tuple[tuple[DataError], _T, int]]:
        """At the end, an error if the file was changed meanwhile."""
        try:
            file.confirm()
        except DataError as error:
            error.offset = file.size
            yield (error.kept().hiding(),), stream, file.size

    def _walked(self, file: OpenFile, version: Version) -> Iterator[tuple[int, Reference | DataError]]:
        path, tag = self.path, file.tag
        offsets: array[int] | None = array("Q") if self.start == 0 else None
        end = 0
        for part in walk_headers(path, start=self.start, first=self._first, storage=self._storage, file=file):
            if isinstance(part, Bad):
                offsets = None
                yield part.offset, part.error
                continue
            end = part.end
            if offsets is not None:
                offsets.extend(part.offsets)
                if len(offsets) * offsets.itemsize > INDEXES.limit:
                    offsets = None
            for at, stop in pairwise([*part.offsets, end]):
                yield at, Reference(path, at, stop - at - OVERHEAD, tag)
        if offsets is not None:
            offsets.append(end)
            keep_index(path, version, RecordIndex(offsets), self._where)


def indexed_elements(
    index: RecordIndex, path: str, stream: _T, start: int = 0, step: int = 1
) -> Iterator[tuple[tuple[Reference | DataError], _T, int]]:
    """Iterate over every `step`-th record of an index from index `start` on, as ((Reference,), stream, offset).

    The references are made in C, 4096 at a time: 0.3 us a record.
    """
    make = partial(tuple.__new__, Reference)
    offsets, faults = index.offsets, index.faults
    tag = None if index.version is None else index.version.tag
    count = len(index)
    for first in range(start, count, _AT_ONCE * step):
        chosen = slice(first, min(first + _AT_ONCE * step, count), step)
        starts = offsets[:-1][chosen]
        lengths = (offsets[1:][chosen] - starts - np.uint64(OVERHEAD)).tolist()
        headers = starts.tolist()
        items: list[Any] = list(map(make, zip(repeat(path), headers, lengths, repeat(tag))))
        for i in faults:
            if i in range(first, chosen.stop, step):
                items[(i - first) // step] = faults[i]
        yield from zip(zip(items, strict=True), repeat(stream), headers)
