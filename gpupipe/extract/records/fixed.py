"""fixed: fixed-length records between a header and a footer, as in CIFAR's files."""

from __future__ import annotations

from collections import deque

from gpupipe.errors import DataError, RecordError
from gpupipe.extract.records.reading import BLOCK, BlockReader, ByteSource, Item, Source

from ...classes import dataclass

__all__ = ["FixedReader"]

_AT_ONCE = 256  # records that are read one by one, at most, for one block


@dataclass(eq=False, repr=False, kw_only=True)
class FixedReader(BlockReader):
    """Iterates over (offset, record) of one file of fixed-length records.

    The offset is that of the record's first byte, in the decompressed stream if the file is compressed. Records are
    read-only views of a block. A plain file whose body is not a multiple of the record's length is one error and
    nothing else, as there is no telling which bytes are surplus. The length of a compressed file is known only at its
    end, so its records come before that error. If a block of a plain file cannot be read, its records are read one by
    one: each that fails is one error, and those after it follow.

    Args:
        path: a local file, or a URL.
        record_bytes: of a record, > 0.
        header_bytes: skipped at the start, >= 0.
        footer_bytes: left unread at the end, >= 0.
        compression: "", "GZIP" or "ZLIB".
        block: bytes read at once, or one record if that is more.
        readers: a pool whose threads read one block ahead.
        storage: the storage of the file.
        start: offset of the record to start with; 0 is the first one, after the header.
    """

    record_bytes: int
    header_bytes: int = 0
    footer_bytes: int = 0

    def source(self) -> Source:
        """Open the file; a plain one must have the right size."""
        return _Fixed(self)

    def wrong_size(self, size: int) -> RecordError:
        """Make the error for a stream whose `size` in bytes is not that of a header, whole records and a footer."""
        reason = (
            f"a file of records needs a header of {self.header_bytes}, records of {self.record_bytes} and a footer of "
            f"{self.footer_bytes} bytes, got {size} bytes: "
        )
        body = size - self.header_bytes - self.footer_bytes
        if body < 0:
            reason += "less than header and footer"
        else:
            reason += f"a body of {body}, which is not a multiple of {self.record_bytes}"
        return RecordError(reason, file=self.path, stage="read")


class _Fixed:
    def __init__(self, reader: FixedReader) -> None:
        self._reader = reader
        self._bytes = ByteSource(reader)
        self._pieces: deque[bytes] = deque()  # read but not yet split into records; a long footer is never joined
        self._have = 0  # bytes in `_pieces`
        self._base = 0  # offset in the stream of the first of them
        self._ended = False
        self._done = False
        self._last = 0  # offset after the last record of a plain file
        self._alone = 0  # records before this offset are read one by one
        self._wrong: DataError | None = None  # why the file has no records at all
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
        """Read some records one by one, each failure as an error of its own; then continue after them."""
        n = self._reader.record_bytes
        while self._base < self._alone and len(out) < _AT_ONCE:
            try:
                out.append((self._base, memoryview(self._bytes.read_at(self._base, n))))
            except DataError as error:
                error.offset = self._base
                out.append((self._base, error.kept()))
            self._base += n
        self._bytes.seek(self._base)

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
        """Remove the first `n` bytes from the pieces and return them."""
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
        """Skip the header in pieces: memory use follows the data, never a given number."""
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
