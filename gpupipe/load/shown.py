"""shown: an iterator that shows its progress on a terminal."""

from __future__ import annotations

from typing import Any

from ..options import Settings
from ..plan.node import Node
from ..progress import Progress as Line
from .iterator import DatasetIterator
from .progress import Numbers

__all__ = ["ShownIterator"]


class ShownIterator(DatasetIterator):
    """An iterator that writes one line about itself: elements, rows per second, the share that the loop waited.

    Args:
        plan: the chain.
        settings: its options.
        epochs: the numbers of the epochs.
    """

    def __init__(self, plan: Node, settings: Settings, epochs: Numbers) -> None:
        super().__init__(plan, settings, epochs)
        self._line = Line()
        self._line.start("epoch")
        self._total = max(plan.cardinality, 0)

    def __next__(self) -> Any:
        try:
            element = super().__next__()
        except StopIteration:
            self._line.finish(self.stats().summary)
            raise
        self._line.update(self._progress.delivered, self._total, "elements", lambda: self.stats().summary)
        return element

    def close(self) -> None:
        super().close()
        self._line.finish(self.stats().summary)
