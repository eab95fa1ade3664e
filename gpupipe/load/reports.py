"""reports: what an iterator says of its elements: which of them were bad, and what its chain holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import BadRecord, PlanError
from ..flow.element import BatchStream, Stream, is_replacement
from ..flow.run import Run
from ..options import Settings
from ..plan.node import Node
from .progress import Progress

if TYPE_CHECKING:
    from ..optimize.report.memory import MemoryReport

__all__ = ["Reports"]


class Reports:
    """What an iterator says of its elements."""

    _plan: Node
    _settings: Settings
    _progress: Progress
    _run: Run | None
    _given: Stream | None  # of the last element
    _rows: int  # of it
    _batched: bool

    @property
    def epoch(self) -> int | None:
        """The number that its random draws depend on; None before the first `next` unless a state was loaded."""
        return self._progress.epoch

    @property
    def left_out(self) -> int:
        """How many bad elements were left out or replaced so far, by `on_error` or `ignore_errors`."""
        return self._progress.left_out if self._run is None else self._run.bad.left_out

    @property
    def errors(self) -> tuple[BadRecord, ...]:
        """The bad elements so far, each once: left out, replaced or raised. The last 10,000, oldest first.

        Those of batches that wait to be taken are among them, so behind a restored state some are listed again. Of a
        batch that is lost as a whole (see `zip` and `ignore_errors`) the first bad row is listed; rows that are dropped
        with a short last batch are never decoded. `Options.error_manifest` keeps all.
        """
        return () if self._run is None else self._run.bad.kept

    @property
    def valid(self) -> Any:
        """Which rows of the last batch are what was read in their place: bool[B]; of a single element, a bool.

        False for those that stand in for a bad one under ``on_error="replace"``. A Python function that changes the
        number of rows takes their places from them: then all are False if one of the batch was. What comes out of a
        cache in a file, or of a saved dataset, is True.

        Raises:
            PlanError: nothing was delivered yet.
        """
        given, rows = self._given, self._rows
        if given is None:
            raise PlanError("iterator.valid speaks of the last element, and there is none yet; call next() first")
        if isinstance(given, BatchStream) and len(given.streams) == rows:
            return np.array([not is_replacement(row) for row in given.streams], bool)
        if rows < 0 or not (self._batched or isinstance(given, BatchStream)):
            return not is_replacement(given)
        return np.full(rows, not is_replacement(given))

    def memory_report(self) -> MemoryReport:
        """What the buffers of the chain hold at this moment, and may hold, by step. Any thread may ask.

        Batches inside an executor, and one that the user holds, are in no buffer.
        """
        from ..optimize.report.memory import memory_report

        return memory_report(self._plan, self._settings, self._run or Run(self._settings))
