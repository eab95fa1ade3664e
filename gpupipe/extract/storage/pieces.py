"""pieces: ranges of many files, requested before they are needed, and kept while they are of use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, Future

from gpupipe.classes import dataclass
from gpupipe.errors import DataError
from gpupipe.extract.storage.ranges_ahead import Pool
from gpupipe.timing import reading

__all__ = ["Piece", "Pieces"]


@dataclass(slots=True, eq=False)
class Piece:
    """Bytes `start` to `stop` of a file.

    Attributes:
        read: reads them.
        users: how many elements wait for it.
        data: the bytes, or the thread's that reads them; None if they cannot be read at once.
    """

    read: Callable[[], bytes]
    start: int
    stop: int
    users: int
    data: Future[bytes] | bytes | None


class Pieces:
    """Ranges of files by any key. One thread at a time uses them; the threads of a pool read them.

    Args:
        pool: makes the requests.
        limit: bytes that are kept. What elements wait for is kept beyond it.

    Attributes:
        held: bytes of all pieces, those on their way included.
        requests: how many were made so far.
    """

    def __init__(self, pool: Pool, limit: int) -> None:
        self._pool, self.limit = pool, limit
        self._known: OrderedDict[tuple[int, int, int], Piece] = OrderedDict()
        self.held = 0
        self.requests = 0

    def want(self, key: tuple[int, int, int], read: Callable[[], bytes], start: int, stop: int) -> Piece:
        """Request a range, unless it is there; it stays until `release` was called as often as this.

        Args:
            key: names it.
            read: reads bytes `start` to `stop`, in any thread.
            start: its first byte.
            stop: the byte after it.
        """
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Piece(read, start, stop, 0, None)
            self.held += stop - start
            self.requests += 1
            try:
                found.data = self._pool.submit(read)
            except RuntimeError:  # the pool was shut down
                found.data = None
        self._known.move_to_end(key)
        found.users += 1
        return found

    def has(self, key: tuple[int, int, int]) -> bool:
        """Whether a range is there, or on its way."""
        return key in self._known

    def data(self, piece: Piece) -> bytes | None:
        """Return the bytes of a piece, once they are there; None if they cannot be read at once."""
        waiting = piece.data
        if not isinstance(waiting, Future):
            return waiting
        clock, data = reading(), None
        try:
            # A range that no thread has started to read is read here: waiting for one might never end.
            data = piece.read() if waiting.cancel() else waiting.result()
        except (CancelledError, DataError):
            pass  # the caller requests the bytes that it needs, and gets their error
        finally:
            piece.data = data
            if clock is not None:
                clock.leave()
        return data

    def release(self, pieces: list[Piece]) -> None:
        """Say that an element has got what it waited for."""
        for piece in pieces:
            piece.users -= 1
        if self.held > self.limit:
            for key, piece in list(self._known.items()):
                if not piece.users:
                    self._forget(key)
                if self.held <= self.limit:
                    return

    def close(self) -> None:
        """Forget all pieces. Safe to call twice."""
        for key in list(self._known):
            self._forget(key)

    def _forget(self, key: tuple[int, int, int]) -> None:
        gone = self._known.pop(key)
        if isinstance(gone.data, Future):
            gone.data.cancel()
        self.held -= gone.stop - gone.start

    def buffer_usage(self) -> tuple[int, int]:
        """The number of pieces, and their bytes."""
        return len(self._known), self.held
