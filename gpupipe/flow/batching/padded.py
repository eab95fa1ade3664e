"""padded: batches of rows that are padded to one shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...classes import dataclass
from ..access import RandomAccess
from ..element import Element
from ..run import Context, Flow
from ..state.snapshot import State
from ..step import Running
from .batcher import Batcher, Group
from .by_index import Batches
from .inline import Inline
from .stack import batch_of, pad_rows

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
        def batcher(source: Iterator[Element]) -> Batcher:
            return Batcher(source, self.size, self.drop, at.run, self.aligned)

        return Inline(self, at, state, batcher, self._padded)

    def _padded(self, group: Group) -> list[Element]:
        """Batch the rows of a group; a hole with the identity of the first if they cannot be padded."""
        rows = group.rows
        made = batch_of(rows, lambda i, column: pad_rows(column, rows, self.names[i], self.shapes[i], self.values[i]))
        return [made if type(made[0]) is tuple else (made[0], *rows[0][1:])]

    def access(self, at: Context) -> RandomAccess:
        return Batches(self, at)
