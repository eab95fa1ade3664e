"""rebatch: batches whose sizes cycle and whose leaves may be ragged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...classes import dataclass
from ...errors import DataError
from ...ragged import stack_arrays
from ..element import Element, Hole, is_element
from ..run import Context, Flow
from ..state.snapshot import State, int_part
from ..step import Running
from .batcher import batch_of_holes
from .gather import Gathering, gathered
from .stack import batch_of, mismatch, one_dtype, stack_rows

__all__ = ["RebatchFlow"]


@dataclass(frozen=True, slots=True)
class RebatchFlow:
    """Batches consecutive elements. The sizes cycle, and leaves may be ragged.

    Attributes:
        sizes: of the batches, one after the other.
        drop: leave out a short last batch.
        ranks: per leaf the number of ragged dimensions of a row; 0 stacks.
        splits: per leaf the dtype of the row splits.
        names: of the leaves, for messages.
        who: the method, for messages.
        aligned: something is zipped to these batches: one with a bad row becomes a hole.
    """

    source: Flow
    sizes: tuple[int, ...]
    drop: bool
    ranks: tuple[int, ...]
    splits: tuple[Any, ...]
    names: tuple[str, ...]
    who: str
    aligned: bool = False

    def open(self, at: Context, state: State = None) -> Running:
        return gathered(lambda start: _Rebatched(self, at, start), at, state)

    def batch(self, rows: list[Element]) -> Element:
        """Batch some elements; a hole if one of them is, or if they do not fit together."""
        bad = next((row[0] for row in rows if type(row[0]) is Hole), None)
        if bad is not None:
            return batch_of_holes(rows, bad)
        return batch_of(rows, lambda i, column: self._stacked(i, column, rows))

    def _stacked(self, i: int, column: tuple[Any, ...], rows: list[Element]) -> Any:
        rank = self.ranks[i]
        if rank == 0:
            return stack_rows(column, rows, self.names[i], self.who)
        first = column[0]
        one_dtype(column, rows, self.names[i], self.who)
        for row, element in zip(column, rows, strict=True):
            if np.ndim(row) != first.ndim or row.shape[rank:] != first.shape[rank:]:
                raise mismatch(self.names[i], first.shape, np.shape(row), rows[0], element, self.who)
        try:
            return stack_arrays(column, rank, self.splits[i])
        except OverflowError as error:
            raise DataError(f"{error}; use row_splits_dtype='int64'", stage=self.who) from error


class _Rebatched(Gathering):
    def __init__(self, flow: RebatchFlow, at: Context, state: State) -> None:
        self._flow = flow
        self._number = 0 if state is None else int_part(state, "batches")
        super().__init__(flow.source, at, state, flow.aligned)

    def snapshot(self) -> State:
        """The state of a `Gathering`, and how many batches there were."""
        return {**super().snapshot(), "batches": self._number}

    def run(self, at: Context) -> Iterator[Element]:
        sizes = self._flow.sizes
        for element in self.elements:
            if at.run.stopped.on:
                return
            if not is_element(element):
                yield element
                continue
            self.held.append((element, self.input.count - 1))
            if len(self.held) == sizes[self._number % len(sizes)]:
                yield self._cut()
                self.checkpoint()
        if self.held and not self._flow.drop and not at.run.stopped.on:
            yield self._cut()

    def _cut(self) -> Element:
        rows, self.held = [row for row, _ in self.held], []
        self._number += 1
        return self._flow.batch(rows)
