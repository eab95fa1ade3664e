"""ranges_ahead: a remote file that is read from start to end; its next ranges are requested before they are needed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, Protocol

from gpupipe.errors import DataError
from gpupipe.extract.storage.files import OpenFile, Storage
from gpupipe.extract.storage.forking import renew_lock
from gpupipe.timing import reading

from ...classes import dataclass

__all__ = ["Pool", "RangeBudget", "RangesAhead"]

AHEAD = 2
"""Ranges of a file that are requested behind the one that is used."""


class Pool(Protocol):
    """The part of a thread pool that a reader needs, as in `concurrent.futures.ThreadPoolExecutor`."""

    def submit(self, fn: Callable[[], Any], /) -> Future[Any]:
        """Run `fn` in some thread; raise RuntimeError after a shutdown."""
        ...


class RangeBudget:
    """The bytes that the ranges of all files of a run may hold together before they are used.

    Attributes:
        limit: in bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._count = self._held = 0
        renew_lock(self)

    def take(self, n: int) -> bool:
        """Reserve `n` bytes for one range; False if they are too many."""
        with self._lock:
            if self._held + n > self.limit:
                return False
            self._held += n
            self._count += 1
            return True

    def give_back(self, n: int) -> None:
        """Return the bytes of one range."""
        with self._lock:
            self._held -= n
            self._count -= 1

    def buffer_usage(self) -> tuple[int, int]:
        """The number of ranges, and their bytes."""
        with self._lock:
            return self._count, self._held


@dataclass(slots=True, eq=False)
class _Range:
    """Bytes `start` to `stop` of a file, or the thread's that reads them; None if they cannot be read at once."""

    start: int
    stop: int
    data: Future[bytes] | bytes | None


class RangesAhead(OpenFile):
    """One version of a remote file; while one range of it is used, the next ones are on their way.

    One thread at a time reads it. What lies before the range that is used is a request of its own. So is what cannot be
    read as part of a range: the error is that of the bytes that were asked for.

    Args:
        storage: the storage.
        path: its name there.
        pool: its threads make the requests.
        budget: for all files of the run.
        each: most bytes of one range.
        start: offset of the first byte that will be read.

    Raises:
        DataError: the file is missing, or cannot be read.
    """

    def __init__(self, storage: Storage, path: str, pool: Pool, budget: RangeBudget, each: int, start: int = 0) -> None:
        super().__init__(storage, path)
        self._pool, self._budget = pool, budget
        left = max(self.size - start, 1)
        self._each = -(-left // -(-left // each))  # as few ranges, equally large: the first one comes sooner
        self._ranges: deque[_Range] = deque()
        self._next = start  # the first byte that was not requested
        self._closed = False
        self._lock = threading.Lock()  # `close` may be called by any thread
        renew_lock(self)
        self._request(AHEAD)

    def read(self, offset: int, n: int) -> bytes:
        """Read exactly `n` bytes from `offset`."""
        pieces: list[bytes | memoryview] = []
        end = offset + n
        while offset < end:
            ahead = self._piece(offset, end)
            pieces.append(super().read(offset, end - offset) if ahead is None else ahead)
            offset += len(pieces[-1])
        return b"".join(pieces)

    def readinto(self, offset: int, out: memoryview) -> None:
        """Fill all of `out` from `offset`."""
        done, end = 0, offset + len(out)
        while offset + done < end:
            piece = self._piece(offset + done, end)
            if piece is None:
                super().readinto(offset + done, out[done:])
                return
            out[done : done + len(piece)] = piece
            done += len(piece)

    def reread(self, offset: int, out: memoryview) -> None:
        """Fill all of `out` from `offset` with a new request, since what came before is damaged."""
        super().readinto(offset, out)
        stop = offset + len(out)
        with self._lock:
            for one in self._ranges:
                if one.start < stop and offset < one.stop:
                    inside = isinstance(one.data, bytes) and one.start <= offset and stop <= one.stop
                    one.data = _with(one.data, offset - one.start, out) if inside else None

    def close(self) -> None:
        """Forget all ranges, and request no more. Safe to call twice, and from any thread."""
        with self._lock:
            self._closed = True
            while self._ranges:
                self._drop()

    def _drop(self) -> None:
        """Forget the first range."""
        gone = self._ranges.popleft()
        if isinstance(gone.data, Future):
            gone.data.cancel()
        self._budget.give_back(gone.stop - gone.start)

    def _piece(self, offset: int, end: int) -> memoryview | None:
        """The bytes from `offset` on, as far as one range has them, `end` at most; None if none has any."""
        with self._lock:
            while self._ranges and self._ranges[0].stop <= offset:
                self._drop()
            if not self._ranges:
                self._next = max(self._next, offset)
        self._request(1 + AHEAD)
        with self._lock:
            found = self._ranges[0] if self._ranges and self._ranges[0].start <= offset else None
        if found is None:
            return None
        data = self._data(found)
        if data is None:
            return None
        return memoryview(data)[offset - found.start : min(end, found.stop) - found.start]

    def _data(self, one: _Range) -> bytes | None:
        """The bytes of a range; None if they cannot be read at once."""
        waiting = one.data
        if not isinstance(waiting, Future):
            return waiting
        clock, data = reading(), None
        try:
            # A range that no thread has started to read is read here: waiting for one might never end.
            data = self._read(one.start, one.stop) if waiting.cancel() else waiting.result()
        except (CancelledError, DataError):
            pass  # the caller requests the bytes that it needs, and gets their error
        finally:
            with self._lock:
                one.data = data
            if clock is not None:
                clock.leave()
        return data

    def _read(self, start: int, stop: int) -> bytes:
        return self.storage.read(self.path, start, stop - start, self.tag)

    def _request(self, most: int) -> None:
        """Request ranges until `most` are there or on their way, the file ends or the budget does."""
        with self._lock:
            while len(self._ranges) < most and self._next < self.size and not self._closed:
                start, stop = self._next, min(self._next + self._each, self.size)
                if not self._budget.take(stop - start):
                    return
                try:
                    future = self._pool.submit(partial(self._read, start, stop))
                except RuntimeError:  # the pool was shut down
                    self._budget.give_back(stop - start)
                    return
                self._ranges.append(_Range(start, stop, future))
                self._next = stop


def _with(data: Any, at: int, fresh: memoryview) -> bytes:
    """The bytes of a range, some of them exchanged."""
    return b"".join((data[:at], fresh, data[at + len(fresh) :]))
