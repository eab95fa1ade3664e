"""reports: the properties of an iterator that report bad elements and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import BadRecord, PlanError
from ..flow.element import BatchStream, Stream, is_replacement
from ..flow.run import Run
from ..options import Settings
from ..plan.node import Node
from .progress import Progress
from .stats import IteratorStats, Loop, stats_of

if TYPE_CHECKING:
    from ..optimize.report.memory import MemoryReport

__all__ = ["Reports"]


class Reports:
    """The reporting part of an iterator."""

    _plan: Node
    _settings: Settings
    _progress: Progress
    _run: Run | None
    _loop: Loop
    _stream: Stream | None  # of the last element
    _rows: int  # of the last element, if it is a batch
    _batched: bool

    @property
    def epoch(self) -> int | None:
        """The epoch that random draws depend on; None before the first `next` unless a state was loaded."""
        return self._progress.epoch

    @property
    def left_out(self) -> int:
        """The number of bad elements left out or replaced so far, by `on_error` or `ignore_errors`."""
        return self._progress.left_out if self._run is None else self._run.bad.left_out

    @property
    def errors(self) -> tuple[BadRecord, ...]:
        """The bad elements so far, each once: left out, replaced or raised. The last 10,000, oldest first.

        They include those of batches that wait for delivery, so after a restored state some are listed again. Of a
        batch that is lost as a whole (see `zip` and `ignore_errors`) the first bad row is listed; rows that are dropped
        with a short last batch are never decoded. `Options.error_manifest` keeps all of them.
        """
        return () if self._run is None else self._run.bad.kept

    @property
    def valid(self) -> Any:
        """Whether each row of the last batch is its own, not a replacement: bool[B]; for a single element, a bool.

        False for rows that replace a bad one under ``on_error="replace"``, and for those that come a second time, from
        the start, so that all ranks make as many steps (`shard(even="wrap")`, `by_rank(remainder="pad")`). If a
        Python function changed the number of rows, all are False if one row of its input was. Rows read from a file
        cache or a saved dataset are True.

        Raises:
            PlanError: no element was delivered yet.
        """
        stream, rows = self._stream, self._rows
        if stream is None:
            raise PlanError(
                "iterator.valid needs a delivered element, got an iterator that gave none; call next() first"
            )
        if isinstance(stream, BatchStream) and len(stream.streams) == rows:
            return np.array([not is_replacement(row) for row in stream.streams], bool)
        if rows < 0 or not (self._batched or isinstance(stream, BatchStream)):
            return not is_replacement(stream)
        return np.full(rows, not is_replacement(stream))

    def stats(self) -> IteratorStats:
        """What the iterator has done so far, and what the loop waited: seconds, elements, reads, the fill of queues.

        These are counted in every run, per batch; `Dataset.profile` measures every step. Callable from any thread.
        """
        return stats_of(self._run, self._loop, self._progress.delivered)

    def memory_report(self) -> MemoryReport:
        """Report what the buffers of the chain hold now, and may hold, by step. Callable from any thread.

        Batches inside an executor, and those that the user holds, are not included.
        """
        from ..optimize.report.memory import memory_report

        return memory_report(self._plan, self._settings, self._run or Run(self._settings))
