"""padded: batches of rows filled up to one shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...errors import DataError
from ..access import Access
from ..element import BatchStream, Element, Hole
from ..run import Context, Flow
from ..state.snapshot import State
from ..step import Running
from .batcher import BatchFormer, Group
from .by_index import Batches
from .resumable import INLINE, Forming
from .stack import pad_rows

__all__ = ["PaddedBatchFlow"]


@dataclass(frozen=True, slots=True)
class PaddedBatchFlow:
    """Consecutive elements, each leaf padded to one shape and stacked."""

    source: Flow
    size: int
    drop: bool
    shapes: tuple[tuple[int, ...] | None, ...]
    values: tuple[Any, ...]
    names: tuple[str, ...]
    aligned: bool = False

    def open(self, at: Context, state: State = None) -> Running:
        def former(source: Iterator[Element]) -> BatchFormer:
            return BatchFormer(source, self.size, self.drop, at.run, self.aligned)

        return _Padded(self, Forming(self.source, at, state, former, INLINE))

    def access(self, at: Context) -> Access:
        return Batches(self, at)


class _Padded(Running):
    def __init__(self, flow: PaddedBatchFlow, forming: Forming) -> None:
        self._flow = flow
        self._forming = forming
        self.source = forming.source

    def __next__(self) -> Element:
        group = self._forming.next()
        if group is None:
            raise StopIteration
        if not isinstance(group, Group):
            return group
        rows, flow = group.rows, self._flow
        columns = zip(*[row[0] for row in rows], strict=True)
        stream = BatchStream.of(rows)
        try:
            leaves = tuple(
                pad_rows(column, rows, name, shape, value)
                for column, name, shape, value in zip(columns, flow.names, flow.shapes, flow.values, strict=True)
            )
        except DataError as error:
            return Hole(error), rows[0][1], rows[0][2]
        return leaves, stream, rows[0][2]

    def snapshot(self) -> State:
        """Where the former stands."""
        return self._forming.exact().state()
