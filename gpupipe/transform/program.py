"""program: the contract between a stage and its executor."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ..classes import dataclass
from ..errors import ClosedError, DataError, GpupipeError
from ..graph.host_values import HostValues, boundary
from ..graph.op import Array
from ..graph.values import Apply, Value, digest_of
from ..ops._shared.decode_smaller import ResizeWindow
from ..threads import Busy
from .cached_array import CachedArray

__all__ = ["BatchFailed", "Executor", "Feed", "Program", "WrongPixels"]


@dataclass(frozen=True, slots=True)
class Program:
    """The image values that one stage computes.

    Attributes:
        outputs: the values to deliver, all of them image values.
        inputs: the host values to feed, in the order of `Feed.values`.
        values: everything computed inside, inputs before users.
    """

    outputs: tuple[Value, ...]
    inputs: tuple[Value, ...] = field(init=False)
    values: tuple[Value, ...] = field(init=False)

    def __post_init__(self) -> None:
        inputs, values = boundary(self.outputs)
        object.__setattr__(self, "inputs", tuple(inputs))
        object.__setattr__(self, "values", tuple(values))

    @property
    def images(self) -> set[Value]:
        """The values that its ops take as images, on a GPU on the GPU.

        Parameters are on the host, as are numbers that users' functions take beside images.
        """
        calls = [value for value in self.values if isinstance(value, Apply)]
        return {
            x
            for call in calls
            for x in call.x
            if not (call.op.foreign or isinstance(call.op, ResizeWindow))
            or x.spec.layout is not None
            or x.spec.rank == 3
        }

    @property
    def digest(self) -> bytes:
        """Digest of the program, the same in every process."""
        return digest_of("program", self.outputs)


@dataclass(frozen=True, slots=True)
class Feed:
    """The inputs of one batch: for each input of the program a list of rows, or an array[B,...] of drawn parameters.

    Attributes:
        size: number of rows.
        values: one entry for each input.
        verified: rows whose decoded images are to be compared with the host's.
        large: for each row the bytes that decoding its large images takes, for an executor that decodes the rows of a
            batch at the same time on the host; () if no row has any.
    """

    size: int
    values: tuple[Sequence[Any] | Array, ...]
    verified: tuple[int, ...] = ()
    large: tuple[int, ...] = ()

    @classmethod
    def of(cls, program: Program, batch: HostValues, every: int = 0) -> Feed:
        """Compute the inputs of a program for a batch; one element in `every` is to be verified, or none if 0."""
        return cls(
            batch.size,
            tuple(batch.rows(value) for value in program.inputs),
            tuple(batch.one_in(every).tolist()) if every else (),
        )

    def on_host(self) -> Feed:
        """The same feed with copies of the arrays that a cache keeps on a GPU."""
        values = tuple(
            [row.read() if type(row) is CachedArray else row for row in rows]
            if len(rows) and any(type(row) is CachedArray for row in rows)
            else rows
            for rows in self.values
        )
        return Feed(self.size, values, self.verified, self.large)

    def part(self, start: int, stop: int) -> Feed:
        """Rows start..stop as a feed."""
        return Feed(
            stop - start,
            tuple(value[start:stop] for value in self.values),
            tuple(row - start for row in self.verified if start <= row < stop),
            self.large[start:stop],
        )

    def chosen(self, rows: Sequence[int]) -> Feed:
        """Some rows as a feed."""
        return Feed(
            len(rows),
            tuple(
                value[list(rows)] if isinstance(value, np.ndarray) else [value[row] for row in rows]
                for value in self.values
            ),
            tuple(n for n, row in enumerate(rows) if row in self.verified),
            tuple(self.large[row] for row in rows) if self.large else (),
        )


class BatchFailed(Exception):
    """A run of the graph failed because of its data.

    Attributes:
        causes: the error of each bad row; empty if the executor knows only that some row is bad.
        text: the executor's message, without noise.
    """

    def __init__(self, text: str, causes: dict[int, DataError] | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.causes = causes or {}


class WrongPixels(Exception):
    """A decoder returned wrong pixels without an error.

    Attributes:
        rows: how each wrong row differs.
        where: what decoded it: the GPU and versions.
        results: of the batch, as `Executor.collect` would have returned them.
    """

    def __init__(self, rows: dict[int, str], where: str, results: list[Any]) -> None:
        super().__init__(next(iter(rows.values())))
        self.rows = rows
        self.where = where
        self.results = results


class Executor(ABC):
    """Runs one program on a sequence of batches. Used by one thread at a time.

    Args:
        label: the name that `explain()` prints, e.g. ``"DALI on CPU"``.
        batch_size: the largest batch that will be submitted.

    Attributes:
        busy: the work of its Python threads, if it has any; those of DALI count themselves nowhere.
        on_gpu: whether it computes on a GPU.
        shared: whether several threads may call `run` at once.
        one_by_one: whether the bad rows of a batch may be found one after the other, in whatever order.
    """

    busy: Sequence[Busy] = ()
    on_gpu: bool = False
    shared: bool = False
    one_by_one: bool = False

    def __init__(self, label: str, batch_size: int) -> None:
        self.label = label
        self._batch_size = batch_size
        self._flights: deque[Any] = deque()
        self._closed = False
        self._pid = os.getpid()

    def submit(self, feed: Feed) -> None:
        """Start a batch of 1 to the executor's batch size rows. Returns before the batch is done."""
        self._check_open()
        if not 1 <= feed.size <= self._batch_size:
            raise GpupipeError(f"{self.label} was built for batches of 1 to {self._batch_size} rows, got {feed.size}")
        self._flights.append(self._start(feed))

    def collect(self, delivered: bool = True) -> list[Any]:
        """Wait for the oldest batch in flight and return one entry per output.

        Each entry is a dense array[B,...] if all rows have one shape, else a list of B arrays. Host arrays are
        owned, writable and never overwritten later.

        Args:
            delivered: whether somebody gets the results; else the rows may come again, in other batches.

        Raises:
            BatchFailed: some rows are bad. The executor stays usable, and later batches in flight are unaffected.
            WrongPixels: some rows are not the images that they should be. Nothing else is affected.
        """
        self._check_open()
        if not self._flights:
            raise GpupipeError(f"{self.label}: collect() needs a batch in flight, got none; call submit() first")
        return self._finish(self._flights.popleft())

    def run(self, feed: Feed) -> list[Any]:
        """Compute one batch; nothing may be in flight. Raises what `collect` raises."""
        self.submit(feed)
        return self.collect()

    def discard(self) -> None:
        """Release all resources after an exception that may have left a batch half done."""
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Release all resources. Batches still in flight are dropped."""

    @abstractmethod
    def _start(self, feed: Feed) -> Any:
        """Start a batch; return what `_finish` needs."""

    @abstractmethod
    def _finish(self, flight: Any) -> list[Any]:
        """Wait for a batch and return its results."""

    def _check_open(self) -> None:
        if self._pid != os.getpid():
            raise ClosedError(f"{self.label} was created before fork; make a new iterator in the child process")
        if self._closed:
            raise ClosedError(f"{self.label} was closed")
