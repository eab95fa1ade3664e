"""program: the contract between a stage and its executor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..errors import DataError
from ..graph.host_values import HostValues, boundary
from ..graph.op import Array
from ..graph.values import Value, digest_of

__all__ = ["BatchFailed", "Executor", "Feed", "Program", "WrongPixels"]


@dataclass(frozen=True, slots=True)
class Program:
    """The image values that one stage computes.

    Attributes:
        outputs: the values to deliver, all of them image values.
        inputs: the host values that enter, one `Feed` entry each.
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
    def digest(self) -> bytes:
        """Equal for equal programs, in every process."""
        return digest_of("program", self.outputs)


@dataclass(frozen=True, slots=True)
class Feed:
    """What one batch brings: for each input of the program a list of rows, or an array[B,...] of drawn parameters.

    Attributes:
        size: number of rows.
        values: one entry for each input.
        verified: rows whose decoded images are to be compared with the host's.
    """

    size: int
    values: tuple[Sequence[Any] | Array, ...]
    verified: tuple[int, ...] = ()

    @classmethod
    def of(cls, program: Program, batch: HostValues, every: int = 0) -> Feed:
        """Compute the inputs of a program for a batch. One element in `every` is to be verified, none of 0."""
        return cls(
            batch.size,
            tuple(batch.rows(value) for value in program.inputs),
            tuple(batch.one_in(every).tolist()) if every else (),
        )

    def part(self, start: int, stop: int) -> Feed:
        """Rows start..stop as a feed of their own."""
        return Feed(
            stop - start,
            tuple(value[start:stop] for value in self.values),
            tuple(row - start for row in self.verified if start <= row < stop),
        )

    def chosen(self, rows: Sequence[int]) -> Feed:
        """Some rows as a feed of their own."""
        return Feed(
            len(rows),
            tuple(
                value[list(rows)] if isinstance(value, np.ndarray) else [value[row] for row in rows]
                for value in self.values
            ),
            tuple(n for n, row in enumerate(rows) if row in self.verified),
        )


class BatchFailed(Exception):
    """A run of the graph failed because of its data.

    Attributes:
        causes: the error of each bad row where the executor knows it; empty where it knows only that one is bad.
        text: the executor's own words, noise removed.
    """

    def __init__(self, text: str, causes: dict[int, DataError] | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.causes = causes or {}


class WrongPixels(Exception):
    """A decoder gave other pixels than the host does, without an error.

    Attributes:
        rows: how, for each row that was found.
        where: what decoded it: the card, the versions.
        results: of the batch, as `Executor.collect` would have given them.
    """

    def __init__(self, rows: dict[int, str], where: str, results: list[Any]) -> None:
        super().__init__(next(iter(rows.values())))
        self.rows = rows
        self.where = where
        self.results = results


class Executor(Protocol):
    """Runs one program on batch after batch. Used by one thread at a time."""

    @property
    def label(self) -> str:
        """What `explain()` prints, e.g. ``"DALI on CPU"``."""
        ...

    def submit(self, feed: Feed) -> None:
        """Start a batch (1 <= size <= the batch size it was made for). Returns before it is done."""
        ...

    def collect(self) -> list[Any]:
        """Wait for the oldest batch in flight and answer one entry per output.

        Each entry is a dense array[B,...] where all rows have one shape, else a list of B arrays. Host arrays are
        owned, writable and never overwritten later.

        Raises:
            BatchFailed: some rows are bad. The executor stays usable, and later batches in flight are unaffected.
            WrongPixels: some rows are not the images that they should be; neither is anything else affected.
        """
        ...

    def close(self) -> None:
        """Give everything back. Batches still in flight are dropped."""
        ...
