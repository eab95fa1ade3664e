"""samples: consecutive members of a tar archive with one key, as WebDataset groups them, as one item.

The key of ``a/b.seg.png`` is ``a/b``, its extension ``seg.png``: the path is cut at the first dot of the base name.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from gpupipe.errors import DataError, ParseError, RecordError, shown_name
from gpupipe.extract.records.index import Indexes, Kind, RecordIndex, find_index, keep_index
from gpupipe.extract.records.reading import BlockReader, Source
from gpupipe.extract.records.reference import Extent
from gpupipe.extract.shards.compared import Compared
from gpupipe.extract.shards.header import BLOCK
from gpupipe.extract.shards.members import Damage, Members
from gpupipe.extract.shards.names import KEY, key_digest, split_name
from gpupipe.extract.shards.window import FileWindow, StreamWindow, Window
from gpupipe.extract.storage.blocks import Blocks
from gpupipe.extract.storage.files import Storage, Version

from ...classes import dataclass

__all__ = ["SAMPLES", "SampleReader"]

_RING = 1 << 20


_MOST = 4096  # items of a block


_SHOWN = 20  # extensions of a sample that an error lists


_ring = Blocks(_RING)


@dataclass(eq=False, repr=False, kw_only=True)
class SampleReader(BlockReader):
    """Iterates over (offset, columns) of one tar archive; a damaged or incomplete sample is (offset, DataError).

    The offset is that of the header of the sample's first member, in the decompressed stream if the archive is
    compressed. Payloads are read-only views of a block, as those of `RecordReader`; members that no column takes are
    not read, except by decompressing them. After a damaged header the next good one is searched; the damage is an
    error at its offset and ends a sample.

    Args:
        path: a local file, or a URL.
        columns: for each column, the extensions that it may have, the first that a sample has wins; or `KEY` alone.
        compression: "", "GZIP" or "ZLIB".
        extents: give an `Extent` in place of each payload, of an uncompressed local archive.
        block: bytes read at once.
        readers: a pool whose threads read one block ahead.
        storage: the storage of the file.
        start: offset of the sample to start with.
        stop: offset to end before; None reads to the end.
        keep: keep the index of an undamaged archive that was read as a whole, see `record_index`; None does not.
        index: what the samples are compared with.
        expected: the indices that they have there.
    """

    columns: Sequence[tuple[bytes, ...]]
    block: int = _RING
    extents: bool = False
    stop: int | None = None
    keep: str | None = None
    index: RecordIndex | None = None
    expected: range = range(0)

    def source(self) -> Source:
        """Open the file."""
        samples = _Samples(self)
        if self.index is None:
            return samples
        return Compared(samples, self, self.index, self.expected, SAMPLES.indexes, self.stop is None)

    def only(self) -> tuple[Any, ...] | DataError:
        """The one sample of the range, or why it cannot be read. Never raises a DataError."""
        try:
            source = self.source()
            items = source.block()
            while more := source.block():
                items += more
            self.confirm()
        except DataError as error:
            return error.kept()
        found: tuple[Any, ...] | DataError = items[-1][1]
        return found


class _Samples:
    """Groups members. `block` is called by one thread at a time."""

    def __init__(self, reader: SampleReader) -> None:
        file = reader.opened()
        self._path, self._tag = reader.path, file.tag
        self._columns = reader.columns
        self._wanted = {extension for names in reader.columns for extension in names} - {KEY}
        self._plain = not reader.codec
        self._extents = reader.extents
        self._piece = reader.block
        self._window: Window
        if reader.codec:
            self._window = StreamWindow(file, reader.codec, reader.block)
        else:
            ring = _ring if reader.block == _RING else Blocks(max(reader.block, 2 * BLOCK))
            self._window = FileWindow(file, ring, reader.stop)
        self._members = Members(self._window, reader.path, reader.start, reader.stop)
        self._walk = iter(self._members)
        self._at = reader.start  # of the sample that is being formed
        self._key: bytes | None = None
        self._seen: list[bytes] = []  # its extensions
        self._parts: dict[bytes, Any] = {}  # payloads of those that are wanted
        self._together = 0  # their bytes
        self._error: DataError | None = None
        self._broken = False  # nothing can be read after an error of a compressed file
        self._done = False
        whole = reader.keep is not None and self._plain and reader.start == 0 and reader.stop is None
        self._keep = reader.keep or ""
        self._version = Version.of_tag(file.tag) if whole else None
        whole = whole and find_index(reader.path, self._version, self._keep, SAMPLES) is None
        self._offsets: array[int] | None = array("Q") if whole else None
        self._digests = array("Q")
        self._hides = self._plain and reader.stop is None
        self._size = file.size
        self._compared = reader.index is not None
        self.keys: list[bytes | None] = []

    def block(self) -> list[tuple[int, Any]]:
        out: list[tuple[int, Any]] = []
        if self._done:
            return out
        wanted = self._wanted
        end = self._at + self._piece
        try:
            for member in self._walk:
                if isinstance(member, Damage):
                    self._finish(member, out)
                    if len(out) >= _MOST:
                        return out
                    continue
                offset, name, data, size, refused = member
                found = split_name(name)
                if found is None:
                    continue
                key, extension = found
                if key != self._key:
                    self._flush(out)
                    self._key, self._at = key, offset
                if len(self._seen) < _SHOWN:
                    self._seen.append(extension)
                if extension in wanted:
                    self._take(extension, name, data, size, refused)
                    if self._broken:
                        break
                if (self._at >= end and out) or len(out) >= _MOST:
                    return out
        except DataError as error:
            self._unreadable(error, out)
            return out
        if not self._done:
            self._finish(None, out)
        return out

    def _finish(self, damage: Damage | None, out: list[tuple[int, Any]]) -> None:
        """End a sample where the archive is damaged, or ends."""
        if damage is None:
            self._done = True
            missing = 0 if self._broken else self._members.cut_off
            if missing:
                reason = f"the archive is truncated, {missing} bytes of the last member and its padding are missing"
                if self._key is not None:
                    self._fail(reason)
                else:
                    at = self._members.last
                    damage = Damage(at, RecordError(reason, file=self._path, offset=at, stage="read"))
        self._flush(out)
        if damage is not None:
            out.append((damage.offset, damage.error))
            self._offsets = None
            if self._compared:
                self.keys.append(None)
        elif self._offsets is not None:
            self._offsets.append(self._size)
            index = RecordIndex(self._offsets, digests=self._digests)
            keep_index(self._path, self._version, index, self._keep, SAMPLES)

    def _unreadable(self, error: DataError, out: list[tuple[int, Any]]) -> None:
        """End where a header cannot be read: the rest of a file that is not compressed is lost."""
        self._done, self._offsets = True, None
        self._flush(out)
        error.offset = at = self._members.at
        error.kept()
        out.append((at, error.hiding() if self._hides else error))

    def _take(self, extension: bytes, name: bytes, data: int, size: int, refused: str) -> None:
        """Read a member that is wanted, or note why it cannot be."""
        if extension in self._parts:
            self._fail(f"its member {_text(name)} is there twice")
        elif refused:
            self._fail(f"its member {_text(name)} is {refused}; store the bytes of files in archives")
        elif size > self._window.longest:
            which = "an" if self._plain else "this compressed"
            most = self._window.longest
            self._fail(f"{_text(name)} has {size} bytes, a member of {which} archive may have {most}")
        elif (together := self._together + size) > self._window.together:
            self._fail(
                f"its members up to {_text(name)} have {together} bytes, a sample of its archive may have "
                f"{self._window.together}"
            )
        elif self._extents:
            self._parts[extension] = Extent(self._path, data, size, self._at, self._tag)
        elif not size:
            self._parts[extension] = b""
        else:
            try:
                self._together = together
                self._parts[extension] = self._window.view(data, size)  # if it is cut off, it is the last: `_finish`
            except DataError as error:
                error.offset = self._at
                self._error, self._broken = self._error or error.kept(), not self._plain

    def _fail(self, reason: str) -> None:
        if self._error is None:
            self._error = RecordError(reason, file=self._path, offset=self._at, stage="read")

    def _flush(self, out: list[tuple[int, Any]]) -> None:
        """Give the sample that is complete, if there is one."""
        if self._key is None:
            return
        if self._offsets is not None:
            self._offsets.append(self._at)
            self._digests.append(key_digest(self._key))
        if self._compared:
            self.keys.append(self._key)
        columns = self._row() if self._error is None else None
        if columns is None:
            out.append((self._at, self._error))
        else:
            out.append((self._at, columns))
        self._key, self._error = None, None
        self._seen = []
        self._parts, self._together = {}, 0

    def _row(self) -> tuple[Any, ...] | None:
        """The columns of the present sample; None, and an error, if a member is missing."""
        parts = self._parts
        row: list[Any] = []
        for names in self._columns:
            for name in names:
                if name in parts:
                    row.append(parts[name])
                    break
            else:
                if names[0] != KEY:
                    wanted, got = b";".join(names).decode(errors="replace"), _text(b", ".join(self._seen))
                    reason = f"a sample needs a member {wanted!r}, {_text(self._key or b'')} has {got}"
                    self._error = ParseError(reason, file=self._path, offset=self._at, stage="read")
                    return None
                row.append(self._key)
        return tuple(row)


def _text(name: bytes) -> str:
    return shown_name(name.decode(errors="surrogateescape"))


def _index_of(path: str, storage: Storage) -> RecordIndex:
    """Build the index of an archive in one pass over its headers: where each sample starts, and what is damaged."""
    offsets, faults, lasting, digests = array("Q"), dict[int, DataError](), True, array("Q")
    for offset, item in SampleReader(path, columns=((KEY,),), storage=storage):
        if isinstance(item, DataError):
            faults[len(offsets)] = item
            lasting = lasting and not item.lost
        offsets.append(offset)
        digests.append(0 if isinstance(item, DataError) else key_digest(item[0]))
    try:
        offsets.append(storage.size(path)[0])
    except DataError:
        offsets.append(offsets[-1] if offsets else 0)
    return RecordIndex(offsets, faults, lasting, digests)


SAMPLES = Kind(_index_of, Indexes(spill=True), b"gptarix\n", BLOCK, layout=2, keyed=True)
"""Indexes of tar archives: the offset and the key of every sample. They do not depend on the columns that are read."""
