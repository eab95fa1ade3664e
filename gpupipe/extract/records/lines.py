r"""lines: the lines of a text file in order, read in blocks.

A line ends with ``\n`` or ``\r\n``, which is not part of it. Empty lines count; bytes after the last newline are one
more line. A lone ``\r`` inside a line is data (TensorFlow drops every one).
"""

from __future__ import annotations

from gpupipe.errors import DataError, RecordError
from gpupipe.extract.records.framing import SEARCHED
from gpupipe.extract.records.reading import BlockReader, ByteSource, Item, Source

from ...classes import dataclass

__all__ = ["LONGEST", "LineReader"]

LONGEST = 64 << 20
"""Bytes of the longest line that is read: a binary file may have no newline at all."""


@dataclass(eq=False, repr=False, kw_only=True)
class LineReader(BlockReader):
    r"""Iterates over (offset, line as bytes without its end) of one file.

    The offset is that of the line's first byte, in the decompressed stream if the file is compressed. A line of more
    than `longest` bytes is one error, and the lines after it follow; if it exceeds `longest` by more than 256 MiB, the
    rest of the file is another error. A missing file and damaged compression are one error, and the iteration ends.

    Args:
        path: a local file, or a URL.
        compression: "", "GZIP" or "ZLIB".
        longest: bytes of the longest line that is held in memory.
        block: bytes read at once.
        readers: a pool whose threads read one block ahead.
        storage: the storage of the file.
        start: offset of the line to start with.
    """

    longest: int = LONGEST

    def source(self) -> Source:
        """Open the file."""
        return _Lines(self)


class _Lines:
    def __init__(self, reader: LineReader) -> None:
        self._reader = reader
        self._bytes = ByteSource(reader)
        self._partial: list[bytes] = []  # pieces of a line whose end is not read yet
        self._length = 0
        self._at = reader.start  # offset of that line
        self._skip = reader.start  # bytes to skip first
        self._too_long = False  # the line is skipped, not kept
        self._done = False

    def block(self) -> list[Item]:
        out: list[Item] = []
        while not out and not self._done:
            try:
                if self._skip:
                    self._bytes.skip(self._skip)
                    self._skip = 0
                piece = self._bytes.read(self._reader.block)
            except DataError as error:
                error.offset = self._at
                out.append((self._at, error.kept()))
                self._done = True
                break
            if piece:
                self._cut(piece, out)
            else:
                self._done = True
                line = b"".join(self._partial)
                if line not in (b"", b"\r") and not self._too_long:  # the last line ends without a newline
                    self._add(line, out)
        return out

    def _cut(self, piece: bytes, out: list[Item]) -> None:
        end = piece.rfind(b"\n")
        if end < 0:
            self._keep(piece, out)
            return
        head, *lines = piece[:end].split(b"\n")
        if self._too_long:
            self._at += self._length + len(head) + 1
        else:
            self._add(b"".join((*self._partial, head)), out)
        self._partial, self._length, self._too_long = [], 0, False
        for line in lines:
            self._add(line, out)
        if end + 1 < len(piece):
            self._keep(piece[end + 1 :], out)

    def _keep(self, piece: bytes, out: list[Item]) -> None:
        """Start or continue a line whose end is not read yet."""
        self._length += len(piece)
        if self._too_long:
            if self._length > self._reader.longest + SEARCHED:  # a file may be a hole of a terabyte
                at = self._at + self._length
                reason = f"the line at {self._at} has no end within {self._length} bytes, what follows is left unread"
                out.append((at, RecordError(reason, file=self._reader.path, offset=at, stage="read")))
                self._done = True
            return
        self._partial.append(piece)
        if self._length > self._reader.longest + 1:  # its last byte may be the \r of its end
            self._too_long, self._partial = True, []
            out.append((self._at, self._error(f"more than {self._reader.longest}")))

    def _add(self, line: bytes, out: list[Item]) -> None:
        at = self._at
        self._at += len(line) + 1
        if line.endswith(b"\r"):
            line = line[:-1]
        if len(line) > self._reader.longest:
            out.append((at, self._error(str(len(line)), at)))
        else:
            out.append((at, line))

    def _error(self, size: str, at: int | None = None) -> RecordError:
        reason = f"a line may have {self._reader.longest} bytes, this one has {size}; is this a text file?"
        return RecordError(reason, file=self._reader.path, offset=self._at if at is None else at, stage="read")
