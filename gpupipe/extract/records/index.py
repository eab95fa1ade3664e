"""index: the offset of every record of a TFRecord file, found in one pass over the headers.

An index gives a file a length and random access. The CRC of every length is verified, no payload is read, and damage is
reported where a sequential reader would find it, as for references: both use `walk_headers`.

An index takes 8 bytes a record, of an archive 16. Those of unchanged files stay in memory, in an LRU, and what has no
room there goes to a temporary file; on request they are saved, beside the file or in a folder. A saved index is checked
in full before it is used. It travels with copies of its file, so of the version it has only the size and the time, and
what is read through it is compared where it lies: a record by its length, a sample by its key.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar, cast

import numpy as np

from gpupipe.errors import DataError, shown_name
from gpupipe.extract.records.crc import crc32c
from gpupipe.extract.records.framing import OVERHEAD
from gpupipe.extract.records.spilled import Spilled
from gpupipe.extract.records.walk import Good, walk_headers
from gpupipe.extract.storage.files import LOCAL, LocalStorage, OpenFile, Storage, Version, translated
from gpupipe.extract.storage.forking import renew_lock
from gpupipe.extract.storage.glob import INDEX_SUFFIX
from gpupipe.extract.storage.replacing import replacing
from gpupipe.extract.storage.retry import asked
from gpupipe.extract.storage.waiting import bounded
from gpupipe.log import logger

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "BESIDE",
    "INDEXES",
    "MEMORY",
    "TFRECORD",
    "Indexes",
    "Kind",
    "RecordIndex",
    "Version",
    "build_index",
    "find_index",
    "keep_index",
    "offset_after",
    "record_index",
    "saved_path",
    "version_of",
]

MEMORY = "memory"
"""Keep indexes in memory only."""


BESIDE = "beside"
"""Save the index of ``a/b`` as ``a/.b.gpindex``."""


LIMIT = 256 << 20


class RecordIndex:
    """The offsets of the records of one file. A damaged spot counts as a record: readers give an error for it.

    Attributes:
        offsets: of every record, and the end of the last one: uint64[records + 1].
        faults: index of a record -> why it cannot be read.
        lasting: whether the file could be read to its end; if not, a later pass may find more.
        digests: of an archive, a digest of the key of every sample, uint64[samples], anything where it is damaged.
        saved: the paths it was saved at, or could not be.
        version: of the file; None if it could not be examined.
    """

    __slots__ = ("_offsets", "digests", "faults", "lasting", "saved", "version")

    def __init__(
        self,
        offsets: array[int],
        faults: dict[int, DataError] | None = None,
        lasting: bool = True,
        digests: array[int] | None = None,
    ) -> None:
        self._offsets = offsets
        self.faults = faults or {}
        self.lasting = lasting
        self.digests = digests
        self.saved: set[str] = set()
        self.version: Version | None = None

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @property
    def offsets(self) -> NDArray[np.uint64]:
        return np.frombuffer(self._offsets, np.uint64)

    @property
    def arrays(self) -> list[array[int]]:
        """The offsets, and the digests if there are any, as they are held."""
        return [self._offsets] if self.digests is None else [self._offsets, self.digests]

    @property
    def nbytes(self) -> int:
        """Its size in memory, in bytes; an error counts as 1000."""
        return sum(len(one) * one.itemsize for one in self.arrays) + 1000 * len(self.faults)

    @property
    def failure(self) -> DataError | None:
        """The reason the file could not be read to its end, if so; records after that point are not counted."""
        return None if self.lasting else self.faults[max(self.faults)]

    def span(self, i: int) -> tuple[int, int]:
        """Return the offset of record `i`, and that of the next one or the end."""
        return self._offsets[i], self._offsets[i + 1]

    def extent(self, i: int) -> tuple[int, int]:
        """Return the offset of record `i`'s header and the bytes of its payload; meaningless for a damaged record."""
        start = self._offsets[i]
        return start, self._offsets[i + 1] - start - OVERHEAD

    def find(self, offset: int) -> int:
        """Return the index of the first record at `offset` or after it."""
        return int(np.searchsorted(self.offsets[:-1], np.uint64(offset)))


def version_of(path: str) -> Version | None:
    """Return the current version of a file; None if the file is missing or cannot be examined."""
    try:
        status = asked(translated, path, None, os.stat, path)
    except DataError:
        return None
    return Version.of(status)


def offset_after(file: OpenFile, where: str, offset: int) -> int | None:
    """Find the offset of the record after the one at `offset`, or the end of the file.

    Args:
        file: a local file.
        where: where its index may be, see `record_index`.
        offset: of a record's header.

    Returns:
        None if there is no index of this version of the file, or no record starts there.
    """
    version = Version.of_tag(file.tag) if isinstance(file.storage, LocalStorage) else None
    index = find_index(file.path, version, where)
    if index is None or not index.lasting:
        return None
    found = index.find(offset)
    if found == len(index) or index.extent(found)[0] != offset:
        return None
    return index.extent(found + 1)[0] if found + 1 < len(index) else file.size


class Held(Protocol):
    """What takes memory."""

    @property
    def nbytes(self) -> int:
        """Its size in memory, in bytes."""
        ...


_Index = TypeVar("_Index", bound=Held)


class Indexes(Generic[_Index]):
    """An LRU of indexes, by path and version of the file. Safe to use from several threads.

    Args:
        limit: bytes that all indexes may take together.
        spill: keep those of records that have no room in a temporary file, so that no header is walked twice.
    """

    def __init__(self, limit: int = LIMIT, spill: bool = False) -> None:
        self.limit = limit
        self._spilled: Spilled[Version] | None = Spilled() if spill else None
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[Version, _Index]] = OrderedDict()
        self._distrusted: dict[str, Version | None] = {}
        self._bytes = 0
        renew_lock(self)

    @property
    def nbytes(self) -> int:
        """The bytes that all indexes take."""
        return self._bytes

    def get(self, path: str, version: Version) -> _Index | None:
        """Return the index of this version of a file, None if there is none."""
        with self._lock:
            found = self._known.get(path)
            if found is not None and found[0] == version:
                self._known.move_to_end(path)
                return found[1]
        kept = None if self._spilled is None else self._spilled.get(path, version)
        if kept is None:
            return None
        (offsets, *digests), faults = kept
        index = RecordIndex(offsets, faults, True, *digests)
        index.version = version
        self.put(path, version, cast("_Index", index))
        return cast("_Index", index)

    def put(self, path: str, version: Version, index: _Index) -> None:
        """Keep an index; in memory, unless it alone exceeds the limit."""
        gone: list[tuple[str, Version, _Index]] = []
        with self._lock:
            self._drop(path)
            if index.nbytes > self.limit:
                gone.append((path, version, index))
            else:
                self._known[path] = version, index
                self._bytes += index.nbytes
            while self._bytes > self.limit:
                oldest = next(iter(self._known))
                gone.append((oldest, *self._known[oldest]))
                self._drop(oldest)
        for one in gone if self._spilled is not None else ():
            self._spill(*one)

    def _spill(self, path: str, version: Version, index: _Index) -> None:
        """Keep an index outside of memory, unless it was saved beside its file or in a folder."""
        assert self._spilled is not None
        if isinstance(index, RecordIndex) and not any(map(os.path.exists, index.saved)):
            self._spilled.put(path, version, index.arrays, index.faults)

    def distrust(self, path: str) -> None:
        """Drop the index of a file whose records are elsewhere, and ignore any that was saved for this version.

        The file was rewritten without a change of its size and time. The next use scans its headers again.
        """
        version = version_of(path)
        with self._lock:
            self._drop(path)
            self._distrusted[path] = version
        if self._spilled is not None:
            self._spilled.drop(path)

    def trusted(self, path: str, version: Version) -> bool:
        """Whether an index that was saved for this version of a file may be used."""
        with self._lock:
            return self._distrusted.get(path) != version

    def _drop(self, path: str) -> None:
        found = self._known.pop(path, None)
        if found is not None:
            self._bytes -= found[1].nbytes

    def clear(self) -> None:
        """Drop all indexes."""
        with self._lock:
            self._known.clear()
            self._distrusted.clear()
            self._bytes = 0
        if self._spilled is not None:
            self._spilled.clear()


INDEXES: Indexes[RecordIndex] = Indexes(spill=True)


class Kind(NamedTuple):
    """What an index lists: the records of TFRecord files, or the samples of archives.

    Attributes:
        build: reads a whole file; called with the path and the storage.
        indexes: those in memory.
        magic: how a saved one starts.
        shortest: bytes of the shortest record.
        layout: the version of the layout of saved ones.
        keyed: whether it has a digest of each record.
    """

    build: Callable[[str, Storage], RecordIndex]
    indexes: Indexes[RecordIndex]
    magic: bytes
    shortest: int
    layout: int
    keyed: bool


def record_index(
    path: str, where: str = MEMORY, *, storage: LocalStorage = LOCAL, kind: Kind | None = None
) -> RecordIndex:
    """Return the index of an uncompressed local file: from memory, as it was saved, or built now.

    A file that cannot be read has one damaged record. Never raises a DataError.

    Args:
        path: the file.
        where: `MEMORY`, `BESIDE`, or a folder to save the index in.
        storage: the storage of the file.
        kind: what is indexed; None: TFRecords.
    """
    kind = kind or TFRECORD
    before = version_of(path)
    found = find_index(path, before, where, kind)
    if found is not None:
        return found
    index = kind.build(path, storage)
    keep_index(path, before, index, where, kind)
    return index


def build_index(path: str, storage: Storage = LOCAL) -> RecordIndex:
    """Build an index in one pass over the headers; it is not kept."""
    offsets, faults, end, lasting = array("Q"), dict[int, DataError](), 0, True
    for part in walk_headers(path, storage=storage):
        if isinstance(part, Good):
            offsets.extend(part.offsets)
            end = part.end
        else:
            faults[len(offsets)] = part.error
            offsets.append(part.offset)
            end = part.offset + OVERHEAD
            lasting = lasting and not part.passing
    offsets.append(end)
    return RecordIndex(offsets, faults, lasting)


TFRECORD = Kind(build_index, INDEXES, b"gpindex\n", OVERHEAD, layout=1, keyed=False)
"""Indexes of TFRecord files."""


def find_index(path: str, version: Version | None, where: str = MEMORY, kind: Kind = TFRECORD) -> RecordIndex | None:
    """Return an existing index of this version of a file, from memory or saved; None if there is none."""
    if version is None:
        return None
    found = kind.indexes.get(path, version)
    if where == MEMORY:
        return found
    target = saved_path(path, where)
    if found is None:
        found = _load(target, path, version, kind) if kind.indexes.trusted(path, version) else None
        if found is not None:
            kind.indexes.put(path, version, found)
    elif not found.faults and target not in found.saved:
        _save(target, version, found, kind)
    return found


def keep_index(
    path: str, version: Version | None, index: RecordIndex, where: str = MEMORY, kind: Kind = TFRECORD
) -> None:
    """Keep an index in memory, and save it if `where` says so. `version` is the file's from before the pass."""
    index.version = version
    if version is None or not index.lasting or version != version_of(path):
        return
    kind.indexes.put(path, version, index)
    if where == MEMORY:
        return
    if index.faults:
        logger.info("the index of %s is not saved: %d records are damaged", shown_name(path), len(index.faults))
        return
    _save(saved_path(path, where), version, index, kind)


_LAYOUT = struct.Struct("<8sIIQqQ")  # magic, version of the layout, CRC-32C of the rest, size, mtime_ns, records


def saved_path(path: str, where: str) -> str:
    """Return the path of a file's saved index: beside it, or in a folder under a name with a hash of the full path."""
    folder, name = os.path.split(path)
    if where == BESIDE:
        return os.path.join(folder, f".{name}{INDEX_SUFFIX}")
    whole = os.fsencode(os.path.abspath(path))
    return os.path.join(where, f"{name}-{hashlib.blake2b(whole, digest_size=8).hexdigest()}{INDEX_SUFFIX}")


def _save(target: str, version: Version, index: RecordIndex, kind: Kind) -> None:
    """Write an index under another name and rename it, so that no reader sees half of one."""
    index.saved.add(target)
    numbers = [np.frombuffer(one, np.uint64).astype("<u8").tobytes() for one in index.arrays]
    body = b"".join((struct.pack("<QqQ", version.size, _time(version), len(index)), *numbers))
    try:
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        with replacing(target, own=True) as file:
            file.write(struct.pack("<8sII", kind.magic, kind.layout, crc32c(body)))
            file.write(body)
    except OSError as error:
        logger.warning("the index %s could not be saved and stays in memory: %s", shown_name(target), error)


def _time(version: Version) -> int:
    """The time of a version in 64 bits: one after 2262 wraps around, which tells versions apart as well."""
    return (version.mtime_ns + (1 << 63)) % (1 << 64) - (1 << 63)


def _load(source: str, path: str, version: Version, kind: Kind) -> RecordIndex | None:
    """Read a saved index; None if it is missing, damaged or belongs to another version of the file."""
    try:
        found = bounded(source, _saved, source, version, kind)
    except DataError as error:
        found = str(error)
    if isinstance(found, str):
        logger.info("the index %s is rebuilt from %s: %s", shown_name(source), shown_name(path), found)
        return None
    return found


def _saved(source: str, version: Version, kind: Kind) -> RecordIndex | str | None:
    """Read a saved index; return the reason if it cannot be used, None if there is none."""
    try:
        status = os.stat(source)
        size = status.st_size
        if not stat.S_ISREG(status.st_mode):
            return "it is not a regular file"
        words = 1 + kind.keyed
        most = _LAYOUT.size + 8 * (words * (version.size // kind.shortest) + 1)
        if size < _LAYOUT.size + 8 or size > most or (size - _LAYOUT.size) % 8:
            return "its size is wrong"
        with open(source, "rb") as file:
            data = file.read(most + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        return str(error)
    if len(data) != size:
        return "it changes while it is read"
    magic, layout, crc, length, mtime, count = _LAYOUT.unpack_from(data)
    if magic != kind.magic or layout != kind.layout:
        return "it is not an index, or of another version"
    if (length, mtime) != (version.size, _time(version)):
        return "the file has changed since"
    if size != _LAYOUT.size + 8 * (words * count + 1) or crc32c(memoryview(data)[16:]) != crc:
        return "it is damaged"
    numbers = np.frombuffer(data, "<u8", offset=_LAYOUT.size)
    found, digests = numbers[: count + 1], numbers[count + 1 :]
    gaps = found[1:] - found[:-1]  # unsigned: an offset below its neighbour wraps to a gap beyond the file
    first = found[0] != 0 and kind is TFRECORD  # a directory may come before the first sample
    if first or found[-1] != version.size or (count and (gaps.min() < kind.shortest or gaps.max() > version.size)):
        return "its offsets make no sense"
    if (digests[1:] == digests[:-1]).any():  # what follows a sample with the same key would belong to it
        return "it splits a sample"
    index = RecordIndex(_array(found), digests=_array(digests) if kind.keyed else None)
    index.saved.add(source)
    index.version = version
    return index


def _array(numbers: NDArray[np.uint64]) -> array[int]:
    found = array("Q")
    found.frombytes(numbers.astype(np.uint64).tobytes())
    return found
