"""direct: the groups of a transform stage, computed on the thread that asks for them.

The executors are there already, and several threads may compute groups at once (`Run.executors`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import DataError, DecodeError, DeviceError
from ...graph.host_values import HostValues
from ...graph.values import Apply
from ...transform.program import BatchFailed, Feed, WrongPixels
from ..batching.batcher import Group
from ..element import Element, Replacement, locate
from ..run import Context, Executors
from .assemble import Assembler, Stage, failed_batch
from .repair import host_copy, in_spite_of, joined, split

__all__ = ["Direct", "RowsFailed"]


class RowsFailed(Exception):
    """Some rows of a group are bad, which only preparing or computing them showed: leave them out from the start.

    Attributes:
        found: the bad rows, each with its error.
    """

    def __init__(self, found: list[tuple[Element, DataError]]) -> None:
        super().__init__(str(found[0][1]))
        self.found = found


class Direct:
    """Makes the elements of groups with executors that it borrows.

    Args:
        flow: the stage.
        at: where it is opened.
    """

    def __init__(self, flow: Stage, at: Context) -> None:
        assert flow.program is not None and at.run.executors is not None
        self._flow, self._program = flow, flow.program
        self._settings = at.run.settings
        self._executors: Executors = at.run.executors
        self._assembler = Assembler(flow, at)
        self._decoders = [value for value in flow.program.values if isinstance(value, Apply) and value.op.decodes]

    def deliver(self, group: Group) -> list[Element]:
        """Make the elements of a group.

        Raises:
            RowsFailed: some of its rows are bad.
        """
        if not group.rows:
            return self._assembler.deliver(group, None, ())
        values = self._assembler.values(group.rows)
        try:
            if group.order is None:
                self._assembler.check_shapes(values, group.rows)
            self._assembler.compute(values)
            feed = Feed.of(self._program, values, self._settings.verify)
            memory, shared = self._settings.device_memory, self._flow.shares_memory
            feeds = split(feed, values, self._decoders, self._executors.capacity, memory, shared)
        except DataError as error:
            bad = {row: error.of_row(row) for row in error.rows}
            if not bad:
                return [failed_batch(group, error)]
            raise self._failed(group.rows, bad) from None
        return self._assembler.deliver(group, values, self._results(group.rows, values, feeds))

    def _results(self, rows: Sequence[Element], values: HostValues, feeds: Sequence[Feed]) -> list[Any]:
        parts: list[list[Any]] = []
        bad: dict[int, DataError] = {}
        start = 0
        for feed in feeds:
            here = rows[start : start + feed.size]
            try:
                results = self._run(feed, here)
                parts.append([host_copy(result) for result in results] if self._flow.to_host else results)
            except BatchFailed as failure:
                bad |= {start + row: error for row, error in (failure.causes or self._find(feed, failure)).items()}
            start += feed.size
        if bad:
            raise self._failed(rows, bad)
        return parts[0] if len(parts) == 1 else [joined(column) for column in zip(*parts, strict=True)]

    def _run(self, feed: Feed, rows: Sequence[Element], delivered: bool = True) -> list[Any]:
        try:
            return self._executors.run(self._flow, feed)
        except WrongPixels as found:
            return in_spite_of(found, rows, self._settings, delivered)

    def _find(self, feed: Feed, failure: BatchFailed) -> dict[int, DataError]:
        """Find the bad rows of a part one by one: errors are few, and requests are small.

        Raises:
            DeviceError: no row is bad.
        """
        found: dict[int, DataError] = {}
        for row in range(feed.size):
            try:
                self._executors.run(self._flow, feed.part(row, row + 1))
            except WrongPixels:
                continue  # of a row that is not delivered
            except BatchFailed as alone:
                found[row] = alone.causes.get(0) or DecodeError(alone.text)
        if not found:
            raise DeviceError(
                f"{self._flow.where.step} failed once and ran on the same images again, so it is not the data: "
                f"{failure.text}; start the process again, or run with Options(device='cpu')"
            )
        return found

    def _failed(self, rows: Sequence[Element], bad: dict[int, DataError]) -> RowsFailed:
        """Blame the elements that bad contents came from: a replacement has those of another element."""
        stage = self._decoders[0].op.stage if self._decoders else "transform"
        owners = {id(row[0]): row for row in rows if type(row[1]) is not Replacement}
        found: dict[int, tuple[Element, DataError]] = {}
        for row, error in sorted(bad.items()):
            element = owners.get(id(rows[row][0]), rows[row])
            found.setdefault(element[2], (element, locate(error, element[1], element[2], stage)))
        return RowsFailed(list(found.values()))
