"""tfrecord: the records of a file in order, damaged ones as errors in their place.

A plain file is read in blocks of up to a megabyte whose parts are handed out without a copy: one job, and one hand-over
of the GIL, for many records. A thread pool reads the next block while this one is used.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpupipe.errors import DataError, RecordError
from gpupipe.extract.records.framing import HEADER, OVERHEAD, SEARCHED, Framer, Item, find_header, seek_header, sniff
from gpupipe.extract.records.index import MEMORY, following
from gpupipe.extract.records.inflate import Inflater, longest_record
from gpupipe.extract.records.reading import BlockReader, Source
from gpupipe.extract.storage.blocks import Blocks

__all__ = ["BLOCK", "RecordReader"]

BLOCK = 1 << 20


_FEW = 256  # records that are read one by one, before those that are there are given


_MOST = 4096  # items behind which a block of much damage ends: whoever closes the reader waits for no more than that


_ring = Blocks(BLOCK)


@dataclass(eq=False, repr=False, kw_only=True)
class RecordReader(BlockReader):
    """Iterates over (offset, payload) of one TFRecord file; a damaged record is (offset, DataError).

    The offset is that of the record's header, in the decompressed stream if the file is compressed. Payloads are
    read-only views of a block: whoever keeps many of them for long copies them, or the whole block stays in memory.
    A wrong payload CRC costs that record only. Behind a damaged length the next header whose CRC fits is searched,
    and the error says how many bytes were passed over; where none begins within 256 MiB, it says how many are left
    unread, and the file ends there. What does not fit its CRC is asked for once more where it came over a network.
    Truncation is one error, and then the iteration ends. Where a block cannot be read, its records are read one by one,
    and each that fails is one error; where even a header fails, which says how long its record is, an index of the file
    knows the next one. Without an index, and where the file is missing, it is one error that is `lost`, and then the
    iteration ends. Iterating never raises a DataError, and iterating again reads the file again.

    Args:
        path: a local file, or a URL.
        compression: "", "GZIP" or "ZLIB".
        check_crc: verify the payloads; lengths are always verified.
        block: bytes read at once, for a plain file.
        readers: a pool whose threads read and verify one block ahead; None reads where the records are asked for.
        start: offset of the record to begin with.
        first: the number of that record, for messages; None where it is not known.
        storage: where the file is; None finds it by the path.
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
        self.ring = _ring if self.block == BLOCK else Blocks(max(self.block, 64))

    def source(self) -> Source:
        """Open the file."""
        return _Compressed(self) if self.codec else _Plain(self)


class _Plain:
    """Blocks of a file that is not compressed. One thread at a time calls `block`."""

    def __init__(self, reader: RecordReader) -> None:
        self._reader = reader
        self._path = reader.path
        self._storage = reader.files
        self._network = not reader.files.random_reads
        self._sent_again = -1  # offset of the last damaged header that was asked for twice
        self._alone = 0  # up to this offset records are read one by one
        self._blocks = reader.ring
        self._framer = Framer(reader.path, check_crc=reader.check_crc, first=reader.first)
        self._size, self._tag = self._storage.size(reader.path)
        self._at = reader.start
        self._want = HEADER  # what the record at `_at` is known to need

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
                error.offset = self._at  # the record's, not that of the range that was read
                following = self._following(self._at)
                out.append((self._at, error.kept() if following is not None else error.kept().hiding()))
                self._at = self._size if following is None else following
        return out

    def _one_by_one(self, out: list[Item]) -> None:
        """Read some records by themselves: what of a block can be read, where the block as a whole cannot."""
        while self._at < self._alone and len(out) < _FEW:
            at = self._at
            head = memoryview(self._read(at, min(HEADER, self._size - at)))
            _, want = self._framer.cut(head, at, self._size, out)
            if want == 0:
                self._seek(out, at + HEADER)
            elif want < 0 or len(head) < HEADER:
                out.append((at, self._truncated()))
                self._at = self._size
            else:
                try:
                    data = self._read(at, want)
                except DataError as error:
                    error.offset = at
                    out.append((at, error.kept()))
                    self._framer.index += 1
                else:
                    self._framer.cut(memoryview(data), at, self._size, out)
                self._at = at + want

    def _following(self, offset: int) -> int | None:
        """Where the record behind the one at `offset` begins, by an index; None where there is none that knows it."""
        self._framer.index += 1
        return None if self._network else following(self._path, self._tag, self._reader.index, offset)

    def _fill(self, out: list[Item]) -> None:
        """Read one block, and the rest of the record its end falls into if there is room."""
        base, left = self._at, self._size - self._at
        capacity = self._blocks.size
        if self._want + HEADER > capacity:  # a record larger than a block; its length is within the file
            have = room = min(self._want + HEADER, left)
            buffer = bytearray(room)
        else:
            buffer = self._blocks.take()
            room = min(capacity, left)
            # Some room is kept for the rest of the last record: no byte is read twice, none is copied.
            have = min(max(capacity - (capacity >> 2), self._want), room)
        whole = memoryview(buffer)
        view = whole.toreadonly()
        self._storage.readinto(self._path, base, whole[:have], self._tag)
        at, want = self._cut(view[:have], base, 0, out, whole)
        self._at = base + at  # the record that an error to read on is of
        end = min(at + want + HEADER, room)  # with the next header: then the length of the next record is known
        if want > 0 and have < end and at + want <= room:
            self._storage.readinto(self._path, base + have, whole[have:end], self._tag)
            at, want = self._cut(view[:end], base, at, out, whole)
        self._at, self._want = base + at, max(want, HEADER)
        if want == 0:
            self._seek(out, base + (end if have < end else have))
        elif want < 0 or self._at < self._size < self._at + HEADER:
            out.append((self._at, self._truncated()))
            self._at = self._size

    def _cut(self, view: memoryview, base: int, at: int, out: list[Item], whole: memoryview) -> tuple[int, int]:
        """Cut records, also behind a damaged header if the next good one is in `view`, a part of `whole`."""
        while True:
            first = len(out)
            at, want = self._framer.cut(view, base, self._size, out, at)
            if self._network:
                self._ask_again(out, first, base, at, view, whole)
            if want:
                return at, want
            if self._network and self._sent_again != base + at:
                self._sent_again = base + at
                if self._read_again(base + at, whole[at : len(view)]):
                    continue
            head = bytes(view[at : at + HEADER])
            found = None if base + at == 0 and sniff(head) else find_header(view, base, self._size, at + 1)
            if found is None:
                return at, 0
            out.append((base + at, self._framer.damaged(base + at, head, found - at)))
            at = found
            if len(out) > _MOST:
                return at, HEADER

    def _ask_again(self, out: list[Item], first: int, base: int, end: int, view: memoryview, whole: memoryview) -> None:
        """Ask once more for each record whose payload does not fit its CRC: a network may have changed it."""
        for i in range(first, len(out)):
            offset, value = out[i]
            if type(value) is memoryview:
                continue
            begin, stop = offset - base, (out[i + 1][0] - base if i + 1 < len(out) else end)
            fresh: list[Item] = []
            if self._read_again(offset, whole[begin:stop]):
                Framer(self._path, check_crc=True, first=None).cut(view[begin:stop], offset, self._size, fresh)
            if fresh and type(fresh[0][1]) is memoryview:
                out[i] = fresh[0]

    def _read_again(self, offset: int, part: memoryview) -> bool:
        """Read a part of a block once more; False where that fails, and the part is what it was."""
        try:
            self._storage.readinto(self._path, offset, part, self._tag)
        except DataError:
            return False
        return True

    def _seek(self, out: list[Item], seen: int) -> None:
        """Go to the next good header, which lies not before `seen`, behind the damaged one at `_at`."""
        start = self._at
        head = self._read(start, HEADER)
        found, unread = None, 0
        if start or not sniff(head):  # in a file of another format nothing is worth a search
            found, unread = seek_header(self._read, start, max(seen - HEADER + 1, start + 1), self._size)
        out.append((start, self._framer.damaged(start, head, None if found is None else found - start, unread)))
        self._at = self._size if found is None else found

    def _truncated(self) -> RecordError:
        left = self._size - self._at
        want = HEADER if left < HEADER else int.from_bytes(self._read(self._at, 8), "little") + OVERHEAD
        return self._framer.truncated(self._at, left, want)

    def _read(self, offset: int, n: int) -> bytes:
        return self._storage.read(self._path, offset, n, self._tag)


class _Compressed:
    """Blocks of a compressed file. One thread at a time calls `block`."""

    def __init__(self, reader: RecordReader) -> None:
        self._path = reader.path
        self._framer = Framer(reader.path, check_crc=reader.check_crc, first=reader.first)
        self._inflater = Inflater(reader.path, reader.codec, reader.files)
        self._limit = self._inflater.limit  # of the stream: a bound until its end is seen
        self._longest = longest_record(self._inflater.size)
        self._piece = reader.ring.size
        self._start = reader.start
        self._base = 0  # offset in the stream of `_data`
        self._data = b""
        self._want = HEADER
        self._ended = False  # nothing more comes from the inflater,
        self._error: DataError | None = None  # ... because of this
        self._done = False

    def block(self) -> list[Item]:
        out: list[Item] = []
        while not out and not self._done:
            if self._base < self._start:
                self._skip()
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
            self._pass_over(want)

    def _pass_over(self, n: int) -> None:
        """Go on behind the next `n` bytes, or at the end of the stream."""
        while n > 0 and not (self._ended and not self._data):
            self._grow(min(n, self._piece))
            gone = min(n, len(self._data))
            self._drop(gone)
            n -= gone

    def _finish(self, out: list[Item]) -> None:
        """End behind the last good record, with an error if anything is left."""
        self._done = True
        have = len(self._data)
        if self._error is not None:
            self._error.offset = self._base  # in the stream, not in the compressed file
            out.append((self._base, self._error))
        elif have:
            want = HEADER if have < HEADER else int.from_bytes(self._data[:8], "little") + OVERHEAD
            most = "" if self._ended else "at most "
            out.append((self._base, self._framer.truncated(self._base, self._limit - self._base, want, most)))

    def _grow(self, n: int) -> None:
        """Decompress until `n` bytes are there or the stream ends: memory follows the data, never a length."""
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

    def _skip(self) -> None:
        self._grow(min(self._piece, self._start - self._base))
        self._drop(len(self._data))
        if self._ended:
            reason = f"no record begins at {self._start}, the stream ends before"
            self._error = self._error or RecordError(reason, file=self._path, stage="read")
            self._start = self._base

    def _seek(self, out: list[Item]) -> None:
        """Go to the next good header behind the damaged one at `_base`."""
        start, head, place = self._base, self._data[:HEADER], 1
        foreign = start == 0 and sniff(head)
        found = None if foreign else find_header(memoryview(self._data), start, self._limit, place)
        while found is None and not foreign and not self._ended and self._base - start <= SEARCHED:
            self._drop(max(len(self._data) - HEADER + 1, 0))
            self._grow(self._piece)
            found = find_header(memoryview(self._data), self._base, self._limit)
        passed = None if found is None else self._base + found - start
        ended = foreign or self._ended or found is not None
        out.append((start, self._framer.damaged(start, head, passed, 0 if ended else None)))
        if found is not None:
            self._drop(found)
        elif self._error is not None:
            self._drop(len(self._data))
        else:
            self._done = True
