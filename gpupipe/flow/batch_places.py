"""batch_places: batches by place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..op import Array
from ..plan.indexed import ENDLESS
from .base import Context, Element
from .buffers import PaddedBatchFlow
from .elements import close
from .places import Access, Picked, access, opens
from .stage import StageFlow
from .step_places import Through

__all__ = ["Batches"]


class Batches(Access):
    """Batches, each made for itself. One with a bad row is a hole in its place: nothing fills it up from behind."""

    def __init__(self, flow: Any, at: Context) -> None:
        self._flow = flow
        self._at = at
        self._rows = access(flow.source, at)
        n, rows = self._rows.size, flow.size
        self.size = n if n == ENDLESS else n // rows if flow.drop else -(-n // rows)

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        rows = self._flow.size
        for block in blocks:
            for place in block.tolist():
                chosen = np.arange(place * rows, min((place + 1) * rows, self._rows.size))
                picked = Picked(self._rows, iter([chosen]))
                made = replace(self._flow, source=picked, aligned=True).open(self._at)
                try:
                    yield from made
                finally:
                    close(made)


@opens(PaddedBatchFlow)
def _padded(flow: PaddedBatchFlow, at: Context) -> Access:
    return Batches(flow, at)


@opens(StageFlow)
def _staged(flow: StageFlow, at: Context) -> Access:
    return Batches(flow, at) if flow.how == "batch" else Through(flow, at)
