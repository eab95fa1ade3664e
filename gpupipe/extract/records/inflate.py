"""inflate: the decompressed bytes of a gzip or zlib file, a bounded piece at a time."""

from __future__ import annotations

import zlib

from gpupipe.errors import DataError, RecordError
from gpupipe.extract.records.compression import Compression
from gpupipe.extract.records.framing import sniff
from gpupipe.extract.storage.files import Storage, read_up_to

__all__ = ["Inflater", "longest_record"]

# A byte of deflate stands for 1032 bytes at most: the longest a stream can get.
MOST = 1032


_CHUNK = 256 << 10


_AT_ONCE = 1 << 20  # bytes that one call makes of them


_PLAUSIBLE, _ANYWAY, _EVER = 100, 256 << 20, 2 << 30


_WINDOW = {"GZIP": 31, "ZLIB": 15}


def longest_record(size: int) -> int:
    """Bytes that one record of a compressed file of `size` bytes may have: a record is held in memory as a whole.

    A megabyte of deflate can say that it is one record of a gigabyte. 256 MiB are allowed anyway, more where the file
    is large enough for it at a hundredth, and never more than 2 GiB, the most that a `tf.train.Example` can have.
    """
    return max(_ANYWAY, min(_PLAUSIBLE * size, _EVER))


class Inflater:
    """Decompresses one local file from its begin to its end.

    Args:
        path: the file.
        compression: "GZIP" (members one after another are one stream) or "ZLIB".
        storage: reads it.

    Raises:
        DataError: from every method; the file is missing, cannot be read, or is not what it should be.
    """

    def __init__(self, path: str, compression: Compression, storage: Storage) -> None:
        self.size, self._tag = storage.size(path)
        self.limit = self.size * MOST + 1024
        self._path = path
        self._name = compression
        self._storage = storage
        self._at = 0
        self._asked_again = -1  # the end of the bytes that were asked for twice
        self._rest = b""
        self._members = 0
        self._damage: RecordError | None = None
        self._stream = zlib.decompressobj(_WINDOW[compression])

    def read(self, n: int) -> bytes:
        """Decompress at most `n` bytes (> 0); none at the end of a whole file."""
        n = min(n, _AT_ONCE)  # what is asked for may be a length out of the file
        while True:
            if self._stream.eof and not self._begin_member():
                return b""
            if not self._rest:
                self._more()
            if self._damage is not None:
                raise self._damage
            before = self._stream.copy()  # 10 us for the 5 ms that a megabyte takes
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
                if not self.size:
                    return b""  # an empty file has no records, compressed or not
                raise self._error(f"the {self._name} stream ends without its last bytes; the file is cut")

    def _more(self) -> None:
        """Read the next compressed bytes; none at the end of the file."""
        self._rest = self._chunk(self._at, min(_CHUNK, self.size - self._at))
        self._at += len(self._rest)

    def _chunk(self, offset: int, n: int) -> bytes:
        try:
            return read_up_to(self._storage, self._path, offset, n, self._tag)
        except DataError as error:
            error.hiding()
            raise

    def _sent_wrong(self) -> bool:
        """Whether a network changed the bytes at hand: asked for once more they are others, and these are taken."""
        if self._storage.random_reads or self._asked_again == self._at:
            return False
        self._asked_again = self._at
        fresh = self._chunk(self._at - len(self._rest), len(self._rest))
        changed, self._rest = fresh != self._rest, fresh
        return changed

    def _salvaged(self, before: zlib._Decompress, n: int) -> bytes:
        """Decompress what comes before the damage: zlib keeps nothing of a call that fails."""
        data = b""
        good, bad = -1, len(self._rest)  # -1: the damage may be among the bytes that zlib already has
        while bad - good > 1:  # the first byte that makes it fail, by halving
            middle = (good + bad) // 2
            try:
                data = before.copy().decompress(self._rest[:middle], n)
                good = middle
            except zlib.error:
                bad = middle
        return data

    def _begin_member(self) -> bool:
        """Go on behind the end of a stream; False at the end of the file."""
        if self._name == "GZIP":  # zeros fill up a block of a tape: gzip and Python pass over them, too
            self._rest = self._rest.lstrip(b"\0")
            while not self._rest and self._at < self.size:
                self._more()
                self._rest = self._rest.lstrip(b"\0")
        if not self._rest and self._at >= self.size:
            return False
        if self._name == "ZLIB":
            left = len(self._rest) + self.size - self._at
            raise self._error(f"{left} bytes follow the end of the ZLIB stream")
        self._members += 1
        self._stream = zlib.decompressobj(_WINDOW[self._name])
        return True

    def _damaged(self, error: zlib.error) -> RecordError:
        head = self._chunk(0, min(8, self.size))
        known = sniff(head)
        if "incorrect header check" in str(error) and not self._members:
            looks = f"it looks like {known}" if known else "is it not compressed?"
            return self._error(f"{self._name} data is needed, the file does not begin as such; {looks}")
        if "incorrect header check" in str(error):
            left = len(self._rest) + self.size - self._at
            return self._error(f"{left} bytes that are no {self._name} data follow the end of the stream")
        return self._error(f"the {self._name} data is damaged: {error}")

    def _error(self, reason: str) -> RecordError:
        return RecordError(reason, file=self._path, stage="read")
