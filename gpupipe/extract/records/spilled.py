"""spilled: indexes that found no room in memory, in a file without a name, which ends with the process."""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from gpupipe.classes import dataclass
from gpupipe.errors import DataError
from gpupipe.extract.storage.forking import renew_lock
from gpupipe.log import logger

__all__ = ["Spilled"]

_Version = TypeVar("_Version")


class _Unnamed:
    """A temporary file without a name, closed when its last user drops it."""

    __slots__ = ("fd",)

    def __init__(self) -> None:
        import tempfile  # of few runs

        self.fd = -1
        with tempfile.TemporaryFile(prefix="gpupipe-") as file:
            self.fd = os.dup(file.fileno())

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:  # `os` is None once Python ends
        if self.fd >= 0:
            _close(self.fd)


@dataclass(frozen=True, slots=True)
class _Place(Generic[_Version]):
    """Where the numbers of one file are.

    Attributes:
        version: of the file that they belong to.
        file: that has them.
        start: their first byte there.
        counts: how many there are in each of the arrays, which follow one another.
        faults: index of a record -> why it cannot be read.
    """

    version: _Version
    file: _Unnamed
    start: int
    counts: Sequence[int]
    faults: dict[int, DataError]


class Spilled(Generic[_Version]):
    """Offsets and digests by path and version of a file, 8 bytes each on the disk of temporary files (``TMPDIR``).

    Reading 100,000 offsets takes a millisecond; walking as many headers on a network disk takes a minute. If the disk
    is full, nothing more is kept, and the log says so once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[str, _Place[_Version]] = {}
        self._file: _Unnamed | None = None
        self._end = 0
        self._owner = 0
        self._full = False
        renew_lock(self)

    def put(self, path: str, version: _Version, arrays: Sequence[array[int]], faults: dict[int, DataError]) -> None:
        """Keep the arrays of an index, unless they are there already or the disk is full."""
        with self._lock:
            known = self._places.get(path)
            if self._full or (known is not None and known.version == version):
                return
            try:
                file = self._opened()
                end = self._end
                for data in (memoryview(one).cast("B") for one in arrays if one):
                    done = 0
                    while done < len(data):
                        done += os.pwrite(file.fd, data[done:], end + done)
                    end += done
            except (OSError, AttributeError) as error:  # the disk is full; or the system has no pwrite
                self._full = True
                import tempfile

                folder = tempfile.gettempdir()
                logger.warning("indexes beyond the limit of memory are built again when needed: %s: %s", folder, error)
                return
            self._places[path] = _Place(version, file, self._end, [len(one) for one in arrays], faults)
            self._end = end

    def get(self, path: str, version: _Version) -> tuple[list[array[int]], dict[int, DataError]] | None:
        """Return the arrays and faults of this version of a file, None if there are none."""
        with self._lock:
            found = self._places.get(path)
        if found is None or found.version != version:
            return None
        arrays: list[array[Any]] = []
        at = found.start
        for count in found.counts:
            one: array[Any] = array("Q")
            end = at + count * one.itemsize
            while at < end:
                try:
                    piece = os.pread(found.file.fd, min(end - at, 1 << 26), at)
                except OSError:
                    piece = b""
                if not piece:
                    self.drop(path)
                    return None
                one.frombytes(piece)
                at += len(piece)
            arrays.append(one)
        return arrays, found.faults

    def drop(self, path: str) -> None:
        """Forget the offsets of a file."""
        with self._lock:
            self._places.pop(path, None)

    def clear(self) -> None:
        """Forget all offsets; their disk space is free again."""
        with self._lock:
            self._places.clear()
            self._file, self._end, self._full = None, 0, False

    def _opened(self) -> _Unnamed:
        """The file that is written to: one of this process, as a forked child would write over its parent's."""
        if self._file is None or self._owner != os.getpid():
            self._file, self._end, self._owner = _Unnamed(), 0, os.getpid()
        return self._file
