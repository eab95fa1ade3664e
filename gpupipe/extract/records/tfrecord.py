"""tfrecord: the records of a file in order, damaged ones as errors in their position.

A plain file is read in blocks of up to a megabyte, whose parts are returned without a copy: one job, and one switch of
the GIL, for many records. A thread pool reads the next block while this one is used.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

from gpupipe.errors import DataError, RecordError
from gpupipe.extract.records.framing import HEADER, OVERHEAD, SEARCHED, Framer, Item, find_header, seek_header, sniff
from gpupipe.extract.records.index import MEMORY, offset_after
from gpupipe.extract.records.inflate import Inflater, longest_record
from gpupipe.extract.records.reading import BlockReader, Source
from gpupipe.extract.storage.blocks import Blocks
from gpupipe.extract.storage.longest import buffer_of, longest

from ...classes import dataclass

__all__ = ["BLOCK", "RecordReader"]

BLOCK = 1 << 20


_FEW = 256  # records that are read one by one, at most, for one block


_MOST = 4096  # items after which a block of much damage ends, so that closing the reader never waits long


_ring = Blocks(BLOCK)

_rings: WeakValueDictionary[int, Blocks] = WeakValueDictionary()
"""Blocks of other sizes, for as long as a file is read by them."""

_KEPT = 128 << 20
"""Bytes of such blocks: 32 of those of remote files, of which an interleave has 8 open and opens 8 ahead."""


def _ring_of(size: int) -> Blocks:
    if size == BLOCK:
        return _ring
    found = _rings.get(size)
    if found is None:  # two threads may make one each: that of the first serves its file alone
        _rings[size] = found = Blocks(size, _KEPT)
    return found


@dataclass(eq=False, repr=False, kw_only=True)
class RecordReader(BlockReader):
    """Iterates over (offset, payload) of one TFRecord file; a damaged record is (offset, DataError).

    The offset is that of the record's header, in the decompressed stream if the file is compressed. Payloads are
    read-only views of a block: copy them to keep them for long, or the whole block stays in memory.

    A wrong payload CRC costs that record only. After a damaged length the next header whose CRC matches is searched,
    and the error says how many bytes were skipped; if there is none within 256 MiB, it says how many are left unread,
    and the iteration ends. Data from a network whose CRC does not match is read a second time. Truncation is one error,
    and then the iteration ends. If a block cannot be read, its records are read one by one, and each that fails is one
    error. If even a header fails, which holds the record's length, an index of the file gives the next record; without
    an index, or if the file is missing, the last item is an error that is `lost`. Iterating never raises a DataError,
    and iterating again reads the file again.

    Args:
        path: a local file, or a URL.
        compression: "", "GZIP" or "ZLIB".
        check_crc: verify the payloads; lengths are always verified.
        block: bytes read at once, for a plain file.
        readers: a pool whose threads read and verify one block ahead; None reads in the iterating thread.
        start: offset of the record to start with.
        first: the index of that record, for messages; None if it is unknown.
        storage: the storage of the file; None finds it by the path.
        index: where its index may be, see `record_index`.

    Raises:
        PlanError: an unknown compression.
    """

    check_crc: bool = True
    block: int = BLOCK
    first: int | None = None
    index: str = MEMORY

    def __post_init__(self) -> None:
        super().__post_init__()
        self.first = 0 if self.start == 0 else self.first
        self.ring = _ring_of(max(self.block, 64))

    def source(self) -> Source:
        """Open the file."""
        return _Compressed(self) if self.codec else _Plain(self)


class _Plain:
    """Blocks of an uncompressed file. `block` is called by one thread at a time."""

    def __init__(self, reader: RecordReader) -> None:
        self._reader = reader
        self._file = reader.opened()
        self._size = self._file.size
        self._network = not reader.files.random_reads
        self._sent_again = -1  # offset of the last damaged header that was read twice
        self._alone = 0  # records before this offset are read one by one
        self._blocks = reader.ring
        self._framer = Framer(reader.path, check_crc=reader.check_crc, first=reader.first)
        self._at = reader.start
        self._want = HEADER  # bytes that the record at `_at` is known to need
        self._longest = longest()

    def block(self) -> list[Item]:
        out: list[Item] = []
        while not out and self._at < self._size:
            try:
                if self._at < self._alone:
                    self._one_by_one(out)
                else:
                    self._fill(out)
            except DataError as error:
                if error.passing and not self._network and self._at >= self._alone:
                    self._alone, self._want = min(self._at + self._blocks.size, self._size), HEADER
                    continue
                error.offset = self._at  # of the record, not of the range that was read
                after = self._offset_after(self._at)
                out.append((self._at, error.kept() if after is not None else error.kept().hiding()))
                self._at = self._size if after is None else after
        return out

    def _one_by_one(self, out: list[Item]) -> None:
        """Read some records one by one, since their block as a whole cannot be read."""
        while self._at < self._alone and len(out) < _FEW:
            at = self._at
            head = memoryview(self._file.read(at, min(HEADER, self._size - at)))
            _, want = self._framer.cut(head, at, self._size, out)
            if want == 0:
                self._seek(out, at + HEADER)
            elif want < 0 or len(head) < HEADER:
                out.append((at, self._truncated()))
                self._at = self._size
            elif want - OVERHEAD > self._longest:
                self._leave_out(out, at, want)
            else:
                try:
                    data = self._file.read(at, want)
                except DataError as error:
                    error.offset = at
                    out.append((at, error.kept()))
                    self._framer.index += 1
                else:
                    self._framer.cut(memoryview(data), at, self._size, out)
                self._at = at + want

    def _offset_after(self, offset: int) -> int | None:
        """Return the offset of the record after the one at `offset`; None if no index knows it."""
        self._framer.index += 1
        return None if self._network else offset_after(self._file, self._reader.index, offset)

    def _fill(self, out: list[Item]) -> None:
        """Read one block, and the rest of its last record if there is room."""
        base, left = self._at, self._size - self._at
        capacity = self._blocks.size
        if self._want + HEADER > capacity:  # a record larger than a block; its length is within the file
            have = room = min(self._want + HEADER, left)
            whole = buffer_of(room, self._reader.path, base)
        else:
            whole = self._blocks.take()
            room = min(capacity, left)
            # Leave room for the rest of the last record: no byte is read twice or copied.
            have = min(max(capacity - (capacity >> 2), self._want), room)
        view = whole.toreadonly()
        self._file.readinto(base, whole[:have])
        at, want = self._cut(view[:have], base, 0, out, whole)
        self._at = base + at  # if the next read fails, it is the error of this record
        end = min(at + want + HEADER, room)  # with the next header, so that the length of the next record is known
        if want > 0 and have < end and at + want <= room:
            self._file.readinto(base + have, whole[have:end])
            at, want = self._cut(view[:end], base, at, out, whole)
        self._at, self._want = base + at, max(want, HEADER)
        if want == 0:
            self._seek(out, base + (end if have < end else have))
        elif want < 0 or self._at < self._size < self._at + HEADER:
            out.append((self._at, self._truncated()))
            self._at = self._size
        elif want - OVERHEAD > self._longest:
            self._leave_out(out, self._at, want)

    def _leave_out(self, out: list[Item], at: int, want: int) -> None:
        """Go past a record that is too long to be held in memory."""
        out.append((at, self._framer.too_long(at, want - OVERHEAD, self._longest)))
        self._at, self._want = at + want, HEADER

    def _cut(self, view: memoryview, base: int, at: int, out: list[Item], whole: memoryview) -> tuple[int, int]:
        """Split off records, also after a damaged header if the next good one is in `view`, a part of `whole`."""
        while True:
            first = len(out)
            at, want = self._framer.cut(view, base, self._size, out, at)
            if self._network:
                self._reread_bad(out, first, base, at, view, whole)
            if want:
                return at, want
            if self._network and self._sent_again != base + at:
                self._sent_again = base + at
                if self._reread(base + at, whole[at : len(view)]):
                    continue
            head = bytes(view[at : at + HEADER])
            found = None if base + at == 0 and sniff(head) else find_header(view, base, self._size, at + 1)
            if found is None:
                return at, 0
            out.append((base + at, self._framer.damaged(base + at, head, found - at)))
            at = found
            if len(out) > _MOST:
                return at, HEADER

    def _reread_bad(
        self, out: list[Item], first: int, base: int, end: int, view: memoryview, whole: memoryview
    ) -> None:
        """Read each record whose payload does not match its CRC a second time: a network may have corrupted it."""
        for i in range(first, len(out)):
            offset, value = out[i]
            if type(value) is memoryview:
                continue
            start, stop = offset - base, (out[i + 1][0] - base if i + 1 < len(out) else end)
            fresh: list[Item] = []
            if self._reread(offset, whole[start:stop]):
                Framer(self._file.path, check_crc=True, first=None).cut(view[start:stop], offset, self._size, fresh)
            if fresh and type(fresh[0][1]) is memoryview:
                out[i] = fresh[0]

    def _reread(self, offset: int, part: memoryview) -> bool:
        """Read a part of a block again; whether that succeeds. If not, the part is unchanged."""
        try:
            self._file.reread(offset, part)
        except DataError:
            return False
        return True

    def _seek(self, out: list[Item], seen: int) -> None:
        """Move to the next good header after the damaged one at `_at`; the bytes before `seen` have been searched."""
        start = self._at
        head = self._file.read(start, HEADER)
        found, unread = None, 0
        if start or not sniff(head):  # a file of another format is not searched
            found, unread = seek_header(self._file.read, start, max(seen - HEADER + 1, start + 1), self._size)
        out.append((start, self._framer.damaged(start, head, None if found is None else found - start, unread)))
        self._at = self._size if found is None else found

    def _truncated(self) -> RecordError:
        left = self._size - self._at
        head = self._file.read(self._at, HEADER) if left >= HEADER else b""
        return self._framer.truncated(self._at, left, head)


class _Compressed:
    """Blocks of a compressed file. `block` is called by one thread at a time."""

    def __init__(self, reader: RecordReader) -> None:
        self._path = reader.path
        self._framer = Framer(reader.path, check_crc=reader.check_crc, first=reader.first)
        file = reader.opened()
        self._inflater = Inflater(file, reader.codec)
        self._limit = self._inflater.limit  # of the stream: an upper bound until its end is seen
        self._longest = longest_record(file.size)
        self._piece = reader.ring.size
        self._start = reader.start
        self._base = 0  # offset of `_data` in the stream
        self._data = b""
        self._want = HEADER
        self._ended = False  # the inflater has no more data,
        self._error: DataError | None = None  # ... because of this error
        self._done = False

    def block(self) -> list[Item]:
        out: list[Item] = []
        while not out and not self._done:
            if self._base < self._start:
                self._skip_to_start()
            else:
                self._fill(out)
        return out

    def _fill(self, out: list[Item]) -> None:
        self._grow(max(self._want, self._piece))
        at, want = self._framer.cut(memoryview(self._data), self._base, self._limit, out)
        self._drop(at)
        self._want = max(want, HEADER)
        if want == 0:
            self._seek(out)
        elif want < 0 or self._ended:
            self._finish(out)
        elif want - OVERHEAD > self._longest:
            out.append((self._base, self._framer.too_long(self._base, want - OVERHEAD, self._longest)))
            self._skip(want)

    def _skip(self, n: int) -> None:
        """Skip the next `n` bytes, or those that are left."""
        while n > 0 and not (self._ended and not self._data):
            self._grow(min(n, self._piece))
            gone = min(n, len(self._data))
            self._drop(gone)
            n -= gone

    def _finish(self, out: list[Item]) -> None:
        """End after the last good record, with an error if anything is left."""
        self._done = True
        if self._error is not None:
            self._error.offset = self._base  # in the stream, not in the compressed file
            out.append((self._base, self._error))
        elif self._data:
            most = "" if self._ended else "at most "
            out.append((self._base, self._framer.truncated(self._base, self._limit - self._base, self._data, most)))

    def _grow(self, n: int) -> None:
        """Decompress until there are `n` bytes or the stream ends: memory use follows the data, never a length."""
        pieces = [self._data]
        have = len(self._data)
        while have < n and not self._ended:
            try:
                piece = self._inflater.read(n - have)
            except DataError as error:
                piece, self._error = b"", error.kept()
            pieces.append(piece)
            have += len(piece)
            if not piece:
                self._ended, self._limit = True, self._base + have
        self._data = b"".join(pieces)

    def _drop(self, n: int) -> None:
        self._data = self._data[n:]
        self._base += n

    def _skip_to_start(self) -> None:
        self._grow(min(self._piece, self._start - self._base))
        self._drop(len(self._data))
        if self._ended:
            reason = f"no record starts at {self._start}, the stream ends before"
            self._error = self._error or RecordError(reason, file=self._path, stage="read")
            self._start = self._base

    def _seek(self, out: list[Item]) -> None:
        """Move to the next good header after the damaged one at `_base`."""
        start, head = self._base, self._data[:HEADER]
        foreign = start == 0 and sniff(head)
        found = None if foreign else find_header(memoryview(self._data), start, self._limit, 1)
        while found is None and not foreign and not self._ended and self._base - start <= SEARCHED:
            self._drop(max(len(self._data) - HEADER + 1, 0))
            self._grow(self._piece)
            found = find_header(memoryview(self._data), self._base, self._limit)
        skipped = None if found is None else self._base + found - start
        ended = foreign or self._ended or found is not None
        out.append((start, self._framer.damaged(start, head, skipped, 0 if ended else None)))
        if found is not None:
            self._drop(found)
        elif self._error is not None:
            self._drop(len(self._data))
        else:
            self._done = True
