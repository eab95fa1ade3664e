"""by_index: batches by their indices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import DataError
from ...graph.op import Array
from ...plan.index import ENDLESS
from ..access import Picked, RandomAccess, access
from ..element import BatchStream, Element, Hole
from ..run import Context
from ..state.snapshot import State
from ..step import Running, close

__all__ = ["Batches"]


class Batches(RandomAccess):
    """Batches, each made for itself. One with a bad row is a hole in its place: nothing fills it up from behind.

    Under "replace" rows stand in within a batch, and one without any good row is the hole.
    """

    def __init__(self, flow: Any, at: Context) -> None:
        self._flow = flow
        self._at = at
        self._rows = access(flow.source, at)
        n, rows = self._rows.size, flow.size
        self.size = n if n == ENDLESS else n // rows if flow.drop else -(-n // rows)

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        rows = self._flow.size
        replaces = self._at.run.settings.on_error == "replace" and getattr(self._flow, "ignores", None) is None
        for block in blocks:
            for place in block.tolist():
                chosen = np.arange(place * rows, min((place + 1) * rows, self._rows.size))
                picked = _Noting(Picked(self._rows, iter([chosen])))
                made = replace(self._flow, source=picked, aligned=True).open(self._at)
                empty = True
                try:
                    for element in made:
                        empty = False
                        yield element
                finally:
                    close(made)
                if empty and replaces and picked.rows and not self._at.run.stopped.is_set():
                    yield _lost(picked.rows)


class _Noting:
    """The rows of one batch, as a flow that remembers them."""

    def __init__(self, source: Picked) -> None:
        self._source = source
        self.rows: list[Element] = []

    def open(self, at: Context, state: State = None) -> Running:
        rows = self._source.open(at, state)
        return Running(self._noted(rows), rows)

    def _noted(self, rows: Iterator[Element]) -> Iterator[Element]:
        for element in rows:
            self.rows.append((None, *element[1:]))
            yield element


def _lost(rows: list[Element]) -> Element:
    """A batch whose rows are all bad. Each of them was noted."""
    error = DataError("every row of the batch is bad").at(rows[0][1].name, rows[0][2], "batch", rows[0][1].unit)
    hole = Hole(error)
    hole.noted = True
    return hole, BatchStream.of(rows), rows[0][2]
