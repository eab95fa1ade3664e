"""byte_file: a file of any storage as the object with `read` and `seek` that the libraries of formats take."""

from __future__ import annotations

import io
import os
from typing import Any

from gpupipe.extract.storage.files import OpenFile

__all__ = ["ByteFile"]


class ByteFile(io.RawIOBase):
    """One version of a file, read with the retries, time limits and checks of its storage, by one thread at a time.

    Args:
        file: the file.

    A read of bytes that are not there is an error of the storage, as everywhere here; at the end there are none.
    """

    def __init__(self, file: OpenFile) -> None:
        super().__init__()
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._file.size}[whence]
        if start + offset < 0:
            raise ValueError(f"a position >= 0 is needed, got {start + offset}")
        self._at = start + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(self._file.size - self._at, 0)
        n = left if size is None or size < 0 else min(size, left)
        data = self._file.read(self._at, n)
        self._at += n
        return data

    def readinto(self, buffer: Any) -> int:
        out = memoryview(buffer).cast("B")
        n = min(len(out), max(self._file.size - self._at, 0))
        if n:
            self._file.readinto(self._at, out[:n])
        self._at += n
        return n
