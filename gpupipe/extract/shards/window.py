"""window: any range of an archive, of which a block is read at a time; ranges that are skipped are not read.

`FileWindow` reads files as they are, `StreamWindow` decompresses them. Offsets never move far back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf

from gpupipe.errors import DataError
from gpupipe.extract.records.compression import Compression
from gpupipe.extract.records.inflate import Inflater, believed, longest_record
from gpupipe.extract.storage.blocks import Blocks
from gpupipe.extract.storage.files import OpenFile
from gpupipe.extract.storage.longest import buffer_of, longest

__all__ = ["FileWindow", "StreamWindow", "Window"]

_NEAR = 8192
"""Bytes between two ranges that are read along with them; after a wider gap the next read starts small."""


_FIRST = 4096
"""Bytes read after such a gap: the rest of a small member and the header after it."""


_EMPTY = memoryview(b"")


class Window(ABC):
    """The bytes of an archive, of which a part is in memory.

    Attributes:
        limit: an upper bound of the archive's length, in bytes.
        longest: bytes that a payload may have.
        together: bytes that the payloads of a sample may have.
        data: the part in memory.
        base: its offset in the archive.
        end: the offset after it.
    """

    data: memoryview
    base: int
    end: int

    def __init__(self, limit: int, longest: int, together: float = inf) -> None:
        self.limit = limit
        self.longest = longest
        self.together = together
        self.data, self.base, self.end = _EMPTY, 0, 0

    def view(self, offset: int, n: int) -> memoryview:
        """The `n` bytes from `offset`, fewer only at the end of the archive.

        Raises:
            DataError: they cannot be read, or the compressed data is damaged before them.
        """
        at = offset - self.base
        if at < 0 or offset + n > self.end:
            return self._load(offset, n)
        return self.data[at : at + n]

    @abstractmethod
    def _load(self, offset: int, n: int) -> memoryview:
        """`view` of bytes that are not in memory as a whole."""


class FileWindow(Window):
    """The bytes of an uncompressed file. Views are parts of a block, which stays in memory as long as one of them.

    Args:
        file: the file.
        ring: the buffers for the blocks.
        stop: bytes after this offset are not read ahead.
    """

    def __init__(self, file: OpenFile, ring: Blocks, stop: int | None = None) -> None:
        super().__init__(file.size, longest())
        self._file = file
        self._ring = ring
        self._stop = file.size if stop is None else stop
        self._near = _FIRST if file.storage.random_reads else ring.size

    def _load(self, offset: int, n: int) -> memoryview:
        """Read a block that starts at `offset`, of at least `n` bytes."""
        n = max(min(n, self.limit - offset), 0)
        block = self._ring.size
        ahead = block if offset - self.end <= _NEAR else self._near
        size = max(n, min(ahead, self._stop - offset))
        self.data, self.base, self.end = _EMPTY, offset, offset
        whole = self._ring.take()[:size] if size <= block else buffer_of(size, self._file.path, offset)
        try:
            self._file.readinto(offset, whole)
        except DataError as error:
            if not error.passing or size == n or not self._file.storage.random_reads:
                raise
            whole = whole[:n]  # perhaps only what was read ahead cannot be read
            self._file.readinto(offset, whole)
        self.data, self.end = whole.toreadonly(), offset + len(whole)
        return self.data[:n]


class StreamWindow(Window):
    """The bytes of a compressed file, from front to back: what lies before the last offset that was asked for is gone.

    Memory follows the data, never a length: `longest` bounds both.
    """

    def __init__(self, file: OpenFile, codec: Compression, block: int) -> None:
        self._inflater = Inflater(file, codec)
        super().__init__(self._inflater.limit, longest_record(file.size), believed(file.size))
        self._piece = block
        self._ended = False
        self._error: DataError | None = None

    def _load(self, offset: int, n: int) -> memoryview:
        while self.end < offset and not self._ended:  # skipped: decompressed, and dropped
            self._grow(self.end, min(self._piece, offset - self.end))
        if not self._ended:
            self._grow(offset, max(n, self._piece))
        at = offset - self.base
        found = self.data[at : at + n]
        if len(found) < n and self._error is not None:
            raise self._error.again()
        return found

    def _grow(self, start: int, n: int) -> None:
        """Drop what lies before `start`, and decompress until there are `n` bytes from there or the stream ends."""
        pieces = [bytes(self.data[start - self.base :])]
        have = len(pieces[0])
        while have < n and not self._ended:
            try:
                piece = self._inflater.read(n - have)
            except DataError as error:
                piece, self._error = b"", error.kept()
            pieces.append(piece)
            have += len(piece)
            if not piece:
                self._ended, self.limit = True, start + have
        self.data, self.base, self.end = memoryview(b"".join(pieces)), start, start + have
