"""reading: a file as blocks of items, read one block ahead by a thread pool if there is one.

TFRecords, lines and fixed-length records share this: a block of many items costs one job and one switch of the GIL,
errors are items in their position, and iterating never raises a DataError. So is this: where a file ends, or has an
error, its version is compared with the one that was opened. A file that was written to meanwhile gave items of both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import KW_ONLY
from functools import partial
from typing import Any, Protocol, TypeVar

from gpupipe.errors import DataError
from gpupipe.extract.records.compression import Compression, checked_compression
from gpupipe.extract.records.inflate import Inflater
from gpupipe.extract.storage.files import OpenFile, Storage
from gpupipe.extract.storage.ranges_ahead import Pool, RangeBudget, RangesAhead
from gpupipe.extract.storage.remote import storage_of
from gpupipe.extract.storage.sharing import gil_is_on, handed_over

from ...classes import dataclass

__all__ = ["BLOCK", "BlockReader", "ByteSource", "Item", "Pool", "Source"]

_T = TypeVar("_T")

Item = tuple[int, "memoryview | bytes | DataError"]
"""(offset, payload or error)."""


BLOCK = 256 << 10
"""Default number of bytes that are read at once."""


class Source(Protocol):
    """Reads and splits the blocks of one pass over a file. Called by one thread at a time."""

    def block(self) -> list[Any]:
        """Return the next items, none at the end. Never raises a DataError."""
        ...


@dataclass(eq=False, repr=False)
class BlockReader(ABC):
    """Iterates over (offset, payload) of one file; a damaged item is (offset, DataError).

    Iterating never raises a DataError, and iterating again reads the file again. If a read fails for good and hides an
    unknown number of items, the last item is an error that is `lost`. So it is if a local file was changed meanwhile.

    Args:
        path: a local file, or a URL.
        compression: "", "GZIP" or "ZLIB".
        block: bytes read at once.
        readers: a pool whose threads read one block ahead; None reads in the iterating thread.
        budget: of the ranges of a remote file that those threads request ahead; None requests none.
        storage: the storage of the file; None finds it by the path.
        start: offset of the item to start with, in the decompressed stream if the file is compressed.
        file: the version of the file that is read; None: the one that it has when it is opened.

    Raises:
        PlanError: an unknown compression.
    """

    path: str
    _: KW_ONLY
    compression: str | None = ""
    block: int = BLOCK
    readers: Pool | None = None
    budget: RangeBudget | None = None
    storage: Storage | None = None
    start: int = 0
    file: OpenFile | None = None

    def __post_init__(self) -> None:
        self.codec: Compression = checked_compression(self.compression)
        self.files: Storage = storage_of(self.path) if self.storage is None else self.storage
        self._closed = False
        self._begun: Future[tuple[Source, list[Any]]] | None = None
        self._ahead: Future[list[Any]] | None = None
        self._opened: OpenFile | None = None
        self._ranges: RangesAhead | None = None
        self._reached = self.start

    @abstractmethod
    def source(self) -> Source:
        """Open the file.

        Raises:
            DataError: it is missing, or not a file.
        """

    def opened(self) -> OpenFile:
        """Open the file as it is, without decompressing it."""
        if self.file is not None:
            self._opened = self.file
        elif self.readers is None or self.budget is None or not self.files.reads_ahead:
            self._opened = OpenFile(self.files, self.path)
        else:
            start = 0 if self.codec else self.start
            self._opened = self._ranges = RangesAhead(
                self.files, self.path, self.readers, self.budget, self.block, start
            )
            if self._closed:  # meanwhile, by another thread
                self._ranges.close()
        return self._opened

    def confirm(self) -> None:
        """Check that the file is still the version that was opened, if that costs no request.

        Raises:
            DataError: it was changed meanwhile.
        """
        if self._opened is not None:
            self._opened.confirm()

    def behind(self, items: list[Any]) -> int:
        """A position behind those of some items, or of all items if there are none."""
        if items:
            return int(items[-1][0]) + 1
        return self._reached if self._opened is None or self.codec else max(self._reached, self._opened.size)

    def begin(self) -> None:
        """Open the file and read its first block in a thread of the pool; without a pool, this does nothing."""
        self._begun = self._submit(self._first)

    def _first(self) -> tuple[Source, list[Any]]:
        self._reached = self.start
        source = self.source()
        return source, self._next(source)

    def _next(self, source: Source) -> list[Any]:
        """The next items of a source, as other threads may use them; at its end an error if the file was changed."""
        items = source.block()
        last = _error_of(items[-1]) if items else None
        if not items or (last is not None and not last.passing):
            try:
                self.confirm()
            except DataError as error:
                at = self.behind([])
                while items and _error_of(items[-1]) is not None:  # of this, all of them
                    at = items.pop()[0]
                error.offset = at
                return [*items, (at, error.kept().hiding())]
        if items:
            self._reached = self.behind(items)
        # Those of a table are no pairs, and hold no views.
        if gil_is_on() or not items or type(items[0]) is not tuple:
            return items
        return [(offset, handed_over(value)) for offset, value in items]

    def __iter__(self) -> Iterator[Any]:
        for block in self.blocks():
            yield from block

    def ready(self) -> bool:
        """Whether the next block can be had without waiting for a thread of the pool."""
        ahead = self._begun or self._ahead
        return ahead is None or ahead.done()

    def close(self) -> None:
        """End every iteration at its next block. A read in progress ends on its own; its result is dropped."""
        self._closed = True
        for waiting in (self._begun, self._ahead):
            if waiting is not None:
                waiting.cancel()
        self._begun = self._ahead = None
        if self._ranges is not None:
            self._ranges.close()

    def blocks(self) -> Generator[list[Any], None, None]:
        """Iterate over non-empty lists of items, one for each block."""
        begun, self._begun = self._begun, None
        try:
            source, items = self._result(begun, self._first)
        except DataError as error:
            yield [(self.start, error.kept().hiding())]
            return
        ahead: Future[list[Any]] | None = None
        following = partial(self._next, source)
        try:
            while items and not self._closed:
                last = _error_of(items[-1])
                if last is not None and last.lost:
                    yield items
                    break
                ahead = self._ahead = self._submit(following)
                yield items
                items = self._result(ahead, following)
        finally:
            if ahead is not None:
                ahead.cancel()
            if self._ranges is not None:
                self._ranges.close()

    def _submit(self, fn: Callable[[], _T]) -> Future[_T] | None:
        if self.readers is None or self._closed:
            return None
        try:
            return self.readers.submit(fn)
        except RuntimeError:  # the pool was shut down: continue without it
            return None

    def _result(self, ahead: Future[_T] | None, fn: Callable[[], _T]) -> _T:
        # A job that no thread has started runs here: waiting for it would only add two thread switches, and would
        # never end if the pool is shut down or this is its last thread.
        if ahead is None or ahead.cancel():
            return fn()
        try:
            return ahead.result()
        except CancelledError:  # by a shutdown of the pool, before the job started
            return fn()


def _error_of(item: Any) -> DataError | None:
    """The error of an item, if it is one."""
    return item[1] if type(item) is tuple and isinstance(item[1], DataError) else None


class ByteSource:
    """The bytes of a file from start to end, decompressed, in bounded pieces.

    Args:
        reader: says which file it is, and how it is compressed.

    Attributes:
        size: bytes of the file; None if it is compressed, since the decompressed size is known only at the end.

    Raises:
        DataError: from every method; the file is missing, cannot be read (`lost`), or is damaged.
    """

    def __init__(self, reader: BlockReader) -> None:
        self._file = reader.opened()
        self._inflater = Inflater(self._file, reader.codec) if reader.codec else None
        self.size = None if reader.codec else self._file.size
        self._at = 0

    def skip(self, n: int) -> None:
        """Skip the next `n` bytes, or those that are left; in a compressed file they are decompressed."""
        if self._inflater is None:
            self._at = min(self._at + n, self._file.size)
            return
        while n > 0:
            data = self._inflater.read(min(n, BLOCK))
            if not data:
                return
            n -= len(data)

    def read(self, n: int) -> bytes:
        """Read at most `n` bytes (> 0), none at the end."""
        if self._inflater is not None:
            return self._inflater.read(n)
        data = self._file.read_up_to(self._at, min(n, self._file.size - self._at))
        self._at += len(data)
        return data

    def seek(self, offset: int) -> None:
        """Continue at an offset of an uncompressed file."""
        self._at = min(offset, self._file.size)

    def read_at(self, offset: int, n: int) -> bytes:
        """Read `n` bytes of an uncompressed file on their own: a failure hides nothing else."""
        return self._file.read(offset, n)
