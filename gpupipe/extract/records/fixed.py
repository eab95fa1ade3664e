"""fixed: records of one fixed length, between a header and a footer, as CIFAR's files have them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from gpupipe.errors import DataError, RecordError
from gpupipe.extract.records.reading import BLOCK, BlockReader, ByteSource, Item, Source

__all__ = ["FixedReader"]

_AT_ONCE = 256  # records that are read by themselves, before those that are there are given


@dataclass(eq=False, repr=False, kw_only=True)
class FixedReader(BlockReader):
    """Iterates over (offset, record) of one file of fixed-length records.

    The offset is that of the record's first byte, in the decompressed stream if the file is compressed. Records are
    read-only views of a block. A plain file whose body is no multiple of the record's length is one error and nothing
    else: which bytes are the surplus nobody knows. Of a compressed file the length is known at its end only: the
    records come first. Where a block of a plain file cannot be read, each of its records is read by itself: where they
    begin is known, so each that fails is one error, and those behind follow.

    Args:
        path: a local file, or a URL.
        record_bytes: of a record, > 0.
        header_bytes: passed over at the begin, >= 0.
        footer_bytes: left unread at the end, >= 0.
        compression: "", "GZIP" or "ZLIB".
        block: bytes read at once, or one record if that is more.
        readers: a pool whose threads read one block ahead.
        storage: where the file is.
        start: offset of the record to begin with; 0 is the first one, behind the header.
    """

    record_bytes: int
    header_bytes: int = 0
    footer_bytes: int = 0

    def source(self) -> Source:
        """Open the file; a plain one must have the right size."""
        return _Fixed(self)

    def wrong_size(self, size: int) -> RecordError:
        """Make the error of a stream of `size` bytes that is not a header, records and a footer."""
        reason = (
            f"a file of records needs a header of {self.header_bytes}, records of {self.record_bytes} and a footer of "
            f"{self.footer_bytes} bytes, got {size} bytes: "
        )
        body = size - self.header_bytes - self.footer_bytes
        if body < 0:
            reason += "less than header and footer"
        else:
            reason += f"a body of {body}, which is no multiple of {self.record_bytes}"
        return RecordError(reason, file=self.path, stage="read")


class _Fixed:
    def __init__(self, reader: FixedReader) -> None:
        self._reader = reader
        self._bytes = ByteSource(reader)
        self._pieces: deque[bytes] = deque()  # what was read, and no record made of; a long footer is never joined
        self._have = 0  # bytes in them
        self._base = 0  # offset of the first in the stream
        self._ended = False
        self._done = False
        self._last = 0  # where the records of a plain file end
        self._alone = 0  # up to this offset they are read one by one
        self._wrong: DataError | None = None  # why there is no record at all
        size = self._bytes.size
        if size is not None:
            self._last = size - reader.footer_bytes
            body = self._last - reader.header_bytes
            if body < 0 or body % reader.record_bytes:
                self._wrong = reader.wrong_size(size)

    def block(self) -> list[Item]:
        out: list[Item] = []
        reader = self._reader
        if self._wrong is not None and not self._done:
            self._done = True
            return [(reader.start, self._wrong)]
        while not out and not self._done:
            if self._base < self._alone:
                self._one_by_one(out)
                continue
            try:
                self._skip_header()
                self._grow(max(reader.block, reader.record_bytes) + reader.footer_bytes)
            except DataError as error:
                if self._bytes.size is not None:
                    self._pieces.clear()
                    self._have = 0
                    self._alone = min(self._base + max(reader.block, reader.record_bytes), self._last)
                    self._done = self._base == self._last  # only the footer is left
                    continue
                error.offset = self._base
                out.append((self._base, error.kept()))
                self._done = True
                break
            self._cut(out)
        return out

    def _one_by_one(self, out: list[Item]) -> None:
        """Some records by themselves, each that cannot be read as an error of its own; then go on behind them."""
        n = self._reader.record_bytes
        while self._base < self._alone and len(out) < _AT_ONCE:
            try:
                out.append((self._base, memoryview(self._bytes.read_at(self._base, n))))
            except DataError as error:
                error.offset = self._base
                out.append((self._base, error.kept()))
            self._base += n
        self._bytes.go_to(self._base)

    def _cut(self, out: list[Item]) -> None:
        reader, step = self._reader, self._reader.record_bytes
        body = self._have - reader.footer_bytes
        end = max(body - body % step, 0)
        view = memoryview(self._taken(end))
        out.extend((self._base + at, view[at : at + step]) for at in range(0, end, step))
        self._base += end
        if not self._ended:
            return
        self._done = True
        if self._base < reader.header_bytes or self._have != reader.footer_bytes:
            error = reader.wrong_size(self._base + self._have)
            error.offset = self._base
            out.append((self._base, error))

    def _taken(self, n: int) -> bytes:
        """The first `n` bytes, which are taken off the pieces."""
        taken, have = [], 0
        while have < n:
            taken.append(self._pieces.popleft())
            have += len(taken[-1])
        if have > n:
            last = taken.pop()
            end = len(last) - (have - n)
            taken.append(last[:end])
            self._pieces.appendleft(last[end:])
        self._have -= n
        return b"".join(taken)

    def _skip_header(self) -> None:
        """Pass over the header in pieces: memory follows the data, never a number."""
        if not self._base and self._reader.start:
            self._bytes.skip(self._reader.start)
            self._base = self._reader.start
        if self._bytes.size is not None and self._base < self._reader.header_bytes:
            self._bytes.skip(self._reader.header_bytes - self._base)
            self._base = self._reader.header_bytes
        while self._base < self._reader.header_bytes and not self._ended:
            data = self._bytes.read(min(BLOCK, self._reader.header_bytes - self._base))
            self._base += len(data)
            self._ended = not data

    def _grow(self, n: int) -> None:
        while self._have < n and not self._ended:
            data = self._bytes.read(min(n - self._have, max(BLOCK, self._reader.block)))
            self._ended = not data
            if data:
                self._pieces.append(data)
                self._have += len(data)
