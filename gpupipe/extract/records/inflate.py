"""inflate: the decompressed bytes of a gzip or zlib file, in bounded pieces."""

from __future__ import annotations

import zlib

from gpupipe.errors import DataError, RecordError
from gpupipe.extract.records.compression import Compression
from gpupipe.extract.records.framing import sniff
from gpupipe.extract.storage.files import OpenFile
from gpupipe.extract.storage.longest import longest

__all__ = ["Inflater", "believed", "longest_record"]

MOST = 1032  # a byte of deflate expands to 1032 bytes at most


_CHUNK = 256 << 10


_AT_ONCE = 1 << 20  # bytes that one call decompresses at most


_PLAUSIBLE, _ANYWAY = 100, 256 << 20


_WINDOW = {"GZIP": 31, "ZLIB": 15}


def believed(size: int) -> int:
    """Return the bytes of a compressed file of `size` bytes that may be in memory together, as one record or sample.

    A megabyte of deflate can claim to be one record of a gigabyte. 256 MiB are always allowed, more up to 100 times the
    file's size.
    """
    return max(_ANYWAY, _PLAUSIBLE * size)


def longest_record(size: int) -> int:
    """Return the bytes that a record of a compressed file of `size` bytes may have: `believed`, and `longest`."""
    return min(believed(size), longest())


class Inflater:
    """Decompresses one file from start to end.

    Args:
        file: the compressed file.
        compression: "GZIP" (concatenated members are one stream) or "ZLIB".

    Raises:
        DataError: from `read`; the file cannot be read, or is damaged.
    """

    def __init__(self, file: OpenFile, compression: Compression) -> None:
        self.limit = file.size * MOST + 1024
        self._file = file
        self._name = compression
        self._at = 0
        self._asked_again = -1  # end of the last range that was read twice
        self._rest = b""
        self._members = 0
        self._damage: DataError | None = None
        self._stream = zlib.decompressobj(_WINDOW[compression])

    def read(self, n: int) -> bytes:
        """Decompress at most `n` bytes (> 0), none at the end of a complete file."""
        n = min(n, _AT_ONCE)  # `n` may be an unchecked length from the file
        while True:
            if self._stream.eof and not self._start_member():
                return b""
            if not self._rest:
                self._more()
            if self._damage is not None:
                raise self._damage
            before = self._stream.copy()  # 10 us, beside 5 ms for decompressing a megabyte
            try:
                data = self._stream.decompress(self._rest, n)
            except zlib.error as error:
                if self._sent_wrong():
                    self._stream = before
                    continue
                self._damage = self._damaged(error)
                self._damage.__cause__ = error
                data = self._salvaged(before, n)
                if data:
                    return data
                continue
            ended = not self._rest
            self._rest = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            if data:
                return data
            if ended and not self._stream.eof:
                if not self._file.size:
                    return b""  # an empty file has no records, compressed or not
                raise self._error(f"the {self._name} stream ends without its last bytes; the file is truncated")

    def _more(self) -> None:
        """Read the next compressed bytes, none at the end of the file."""
        self._rest = self._file.read_up_to(self._at, min(_CHUNK, self._left()))
        self._at += len(self._rest)

    def _left(self) -> int:
        return self._file.size - self._at

    def _sent_wrong(self) -> bool:
        """Read the current bytes again if they came over a network; whether they differ now."""
        if self._file.storage.random_reads or self._asked_again == self._at:
            return False
        self._asked_again = self._at
        fresh = bytearray(len(self._rest))
        self._file.reread(self._at - len(fresh), memoryview(fresh))
        changed, self._rest = fresh != self._rest, bytes(fresh)
        return changed

    def _salvaged(self, before: zlib._Decompress, n: int) -> bytes:
        """Decompress what precedes the damage: a failed call of zlib returns nothing."""
        data = b""
        good, bad = -1, len(self._rest)  # -1: the damage may be in bytes that zlib has already consumed
        while bad - good > 1:  # binary search for the first byte that makes it fail
            middle = (good + bad) // 2
            try:
                data = before.copy().decompress(self._rest[:middle], n)
                good = middle
            except zlib.error:
                bad = middle
        return data

    def _start_member(self) -> bool:
        """Continue after the end of a stream; False at the end of the file."""
        if self._name == "GZIP":  # zero padding, as of tape blocks, is skipped by gzip and Python, too
            self._rest = self._rest.lstrip(b"\0")
            while not self._rest and self._left():
                self._more()
                self._rest = self._rest.lstrip(b"\0")
        if not self._rest and not self._left():
            return False
        if self._name == "ZLIB":
            left = len(self._rest) + self._left()
            raise self._error(f"{left} bytes follow the end of the ZLIB stream")
        self._members += 1
        self._stream = zlib.decompressobj(_WINDOW[self._name])
        return True

    def _damaged(self, error: zlib.error) -> DataError:
        head = self._file.read_up_to(0, min(8, self._file.size))
        known = sniff(head)
        if "incorrect header check" in str(error) and not self._members:
            looks = f"it looks like {known}" if known else "is it not compressed?"
            return self._error(f"{self._name} data is needed, the file does not start like it; {looks}")
        if "incorrect header check" in str(error):
            left = len(self._rest) + self._left()
            return self._error(f"{left} bytes that are not {self._name} data follow the end of the stream")
        return self._error(f"the {self._name} data is damaged: {error}")

    def _error(self, reason: str) -> DataError:
        """How many records follow damage of the stream is not known."""
        return RecordError(reason, file=self._file.path, stage="read").hiding()
