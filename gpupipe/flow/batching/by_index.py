"""by_index: batches by index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import DataError
from ...graph.op import Array
from ...plan.index import ENDLESS
from ..access import Picked, RandomAccess, access, within
from ..element import BatchStream, Element, Hole
from ..run import Context
from ..state.snapshot import State
from ..step import Running, close

__all__ = ["Batches"]


class Batches(RandomAccess):
    """Batches by index. One with a bad row is a hole: no row of the next batch fills it up.

    Under "replace" good rows of the same batch replace bad ones; a batch without a good row is a hole.
    """

    def __init__(self, flow: Any, at: Context) -> None:
        self._flow = flow
        self._at = at.for_places(None)  # the rows of a batch are known
        self._rows = access(flow.source, self._at)
        n, rows = self._rows.size, flow.size
        self.size = n if n == ENDLESS else n // rows if flow.drop else -(-n // rows)

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        rows = self._flow.size
        replaces = self._at.run.settings.on_error == "replace" and getattr(self._flow, "ignores", None) is None
        for block in blocks:
            if self._rows.size == ENDLESS:
                within(block, ENDLESS // rows)
            for index in block.tolist():
                indices = np.arange(index * rows, min((index + 1) * rows, self._rows.size))
                picked = _Recorded(Picked(self._rows, iter([indices])))
                made = replace(self._flow, source=picked, aligned=True).open(self._at)
                empty = True
                try:
                    for element in made:
                        empty = False
                        yield element
                finally:
                    close(made)
                if empty and replaces and picked.rows and not self._at.run.stopped.on:
                    yield _without_good_row(picked.rows)

    def changed(self) -> Iterator[Element]:
        return self._rows.changed()


class _Recorded:
    """A flow of the rows of one batch, which records their identities."""

    def __init__(self, source: Picked) -> None:
        self._source = source
        self.rows: list[Element] = []

    def open(self, at: Context, state: State = None) -> Running:
        rows = self._source.open(at, state)
        return Running(self._recorded(rows), rows)

    def _recorded(self, rows: Iterator[Element]) -> Iterator[Element]:
        for element in rows:
            self.rows.append((None, *element[1:]))
            yield element


def _without_good_row(rows: list[Element]) -> Element:
    """Make a batch whose rows are all bad a hole that is not reported again: each row was."""
    error = DataError("every row of the batch is bad").at(rows[0][1].name, rows[0][2], "batch", rows[0][1].unit)
    hole = Hole(error)
    hole.noted = True
    return hole, BatchStream.of(rows), rows[0][2]
