"""reading: a file as blocks of items, read one block ahead by a thread where one is lent.

What is common to TFRecords, lines and fixed-length records: a block of many items costs one job and one hand-over of
the GIL, errors are items in their place, and nothing here raises a DataError.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol, TypeVar

from gpupipe.errors import DataError
from gpupipe.extract.records.compression import Compression, checked_compression
from gpupipe.extract.records.inflate import Inflater
from gpupipe.extract.storage.files import Storage, read_up_to, storage_of

__all__ = ["BLOCK", "BlockReader", "ByteSource", "Item", "Pool", "Source"]

Item = tuple[int, "memoryview | bytes | DataError"]
"""(offset, payload or error)."""


BLOCK = 256 << 10
"""Bytes of a plain file that are read at once where nothing else is said."""


_Reader = TypeVar("_Reader", bound="BlockReader")


class Pool(Protocol):
    """What a reader needs of a thread pool; `concurrent.futures.ThreadPoolExecutor` has it."""

    def submit(self, fn: Callable[[], Any], /) -> Future[Any]:
        """Run `fn` in some thread; RuntimeError if that is no longer possible."""
        ...


class Source(Protocol):
    """What reads and cuts the blocks of one pass over a file. One thread at a time calls it."""

    def block(self) -> list[Any]:
        """Read and cut the next items; none at the end. It never raises a DataError."""
        ...


@dataclass(eq=False, repr=False)
class BlockReader(ABC):
    """Iterates over (offset, payload) of one file; what is damaged is (offset, DataError).

    Iterating never raises a DataError, and iterating again reads the file again. Where a read fails for good and nobody
    knows how many items that hides, it is a last error that is `lost`.

    Args:
        path: a local file, or a URL.
        compression: "", "GZIP" or "ZLIB".
        block: bytes read at once.
        readers: a pool whose threads read one block ahead; None reads where the items are asked for.
        storage: where the file is; None finds it by the path.
        start: offset of the item to begin with, in the decompressed stream if the file is compressed.

    Raises:
        PlanError: an unknown compression.
    """

    path: str
    _: KW_ONLY
    compression: str | None = ""
    block: int = BLOCK
    readers: Pool | None = None
    storage: Storage | None = None
    start: int = 0

    def __post_init__(self) -> None:
        self.codec: Compression = checked_compression(self.compression)
        self.files: Storage = storage_of(self.path) if self.storage is None else self.storage
        self._closed = False
        self._ahead: Future[list[Any]] | None = None

    @abstractmethod
    def source(self) -> Source:
        """Open the file.

        Raises:
            DataError: it is missing, or no file.
        """

    def __iter__(self) -> Iterator[Any]:
        for block in self.blocks():
            yield from block

    def __enter__(self: _Reader) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ready(self) -> bool:
        """Whether the next block is there without waiting for a thread of the pool."""
        ahead = self._ahead
        return ahead is None or ahead.done()

    def close(self) -> None:
        """End every iteration at its next block. A read in progress ends by itself; its result is dropped."""
        self._closed = True
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.cancel()

    def blocks(self) -> Generator[list[Any], None, None]:
        """Iterate over the items in lists of many, as they are read; no list is empty."""
        try:
            source = self.source()
        except DataError as error:
            yield [(self.start, error.kept().hiding())]
            return
        ahead: Future[list[Any]] | None = None
        try:
            while not self._closed:
                items = self._result(ahead, source)
                if not items:
                    return
                ahead = self._ahead = self._submit(source)
                yield items
        finally:
            if ahead is not None:
                ahead.cancel()

    def _submit(self, source: Source) -> Future[list[Any]] | None:
        if self.readers is None or self._closed:
            return None
        try:
            return self.readers.submit(source.block)
        except RuntimeError:  # the pool was shut down: go on without it
            return None

    def _result(self, ahead: Future[list[Any]] | None, source: Source) -> list[Any]:
        # A job that no thread has begun is done here and now: waiting for it would only add two switches of threads,
        # and would never end if the pool is shut down or this runs in its last thread.
        if ahead is None or ahead.cancel():
            return source.block()
        try:
            return ahead.result()
        except CancelledError:  # by whoever shut down the pool, before it began
            return [] if self._closed else source.block()


class ByteSource:
    """The bytes of a file from its begin to its end, decompressed, a bounded piece at a time.

    Args:
        reader: says which file, and how it is compressed.

    Attributes:
        size: bytes of the file; None where it is compressed, as nobody knows before the end.

    Raises:
        DataError: from every method; the file is missing, cannot be read (`lost`), or is not what it should be.
    """

    def __init__(self, reader: BlockReader) -> None:
        self._path = reader.path
        self._storage = reader.files
        self._at = 0
        self._inflater: Inflater | None = None
        self.size: int | None = None
        self._end, self._tag = 0, ""
        if reader.codec:
            self._inflater = Inflater(reader.path, reader.codec, reader.files)
        else:
            self._end, self._tag = self._storage.size(reader.path)
            self.size = self._end

    def skip(self, n: int) -> None:
        """Pass over the next `n` bytes, or what there is of them; those of a compressed file are decompressed."""
        if self._inflater is None:
            self._at = min(self._at + n, self._end)
            return
        while n > 0:
            data = self._inflater.read(min(n, BLOCK))
            if not data:
                return
            n -= len(data)

    def read(self, n: int) -> bytes:
        """Read at most `n` bytes (> 0); none at the end."""
        if self._inflater is not None:
            return self._inflater.read(n)
        try:
            data = read_up_to(self._storage, self._path, self._at, min(n, self._end - self._at), self._tag)
        except DataError as error:
            error.hiding()
            raise
        self._at += len(data)
        return data

    def go_to(self, offset: int) -> None:
        """Go on at an offset of a file that is not compressed."""
        self._at = min(offset, self._end)

    def read_at(self, offset: int, n: int) -> bytes:
        """Read `n` bytes of a file that is not compressed, by themselves: what fails hides nothing else."""
        return self._storage.read(self._path, offset, n, self._tag)
