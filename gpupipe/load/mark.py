"""mark: the checkpoint that an iterator keeps of its flow, to resume exactly after an interrupt."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from ..errors import DataError, StateError
from ..flow.element import Raised
from ..flow.run import SILENT_REPLAY, Run
from ..flow.state.checkpoints import EVERY, PER_PART, Interval
from ..flow.state.snapshot import State, check_count, written
from ..flow.step import close

__all__ = ["Mark", "skip_delivered"]

SELDOM = 4
"""An iterator takes a checkpoint after so many times the elements after which a step takes one."""


class Mark:
    """A checkpoint of a flow, and the count of elements since.

    Attributes:
        checkpoint: a state, and the number of elements delivered before it, minus 1 for each element since then that
            the flow gave but the iterator did not deliver, such as a bad one that was left out. So the elements
            delivered now, minus this number, are those that the flow has given since.
        since: how many bad elements had been found there.
        next_at: the number of delivered elements at which `renew` is to be called.

    Args:
        state: the state in which the flow is opened.
        delivered: elements that the iterator had delivered before it.
    """

    __slots__ = ("_interval", "checkpoint", "next_at", "since")

    def __init__(self, state: State, delivered: int) -> None:
        self.checkpoint: tuple[State, int] = state, delivered
        self.since = 0
        self.next_at = delivered + 1
        self._interval = Interval(every=SELDOM * EVERY, per_part=SELDOM * PER_PART)

    def keep(self) -> None:
        """Keep this checkpoint: take no other one."""
        self.next_at = sys.maxsize

    def needed(self) -> int:
        """The number of the first bad element that is needed to go on from here."""
        first = written(self.checkpoint[0])[1]
        return self.since if first is None else min(first, self.since)

    def renew(self, items: Any, delivered: int, rows: int, found: int) -> None:
        """Take a new checkpoint.

        Args:
            items: the running flow, between two elements.
            delivered: elements that the iterator has delivered so far.
            rows: rows of such an element, if it is a batch.
            found: how many bad elements were found so far.
        """
        try:
            state = items.snapshot()
        except (StateError, RecursionError):
            # RecursionError: the steps nest too deep for a snapshot. `state_dict` raises; an interrupt costs more
            # elements to skip.
            self.keep()
            return
        self.checkpoint, self.since = (state, delivered), found
        rows = max(1, rows)
        self._interval.taken(delivered * rows, state)
        self.next_at = max(delivered + 1, self._interval.next // rows)


def skip_delivered(items: Any, count: int, run: Run) -> None:
    """Make elements again that were delivered before, and discard them.

    Args:
        items: the running flow, which is closed if this fails.
        count: how many elements to skip.
        run: the run of the flow; its bad elements were noted before.

    Raises:
        StateError: there are fewer elements.
    """
    check_count(count)
    good, before = run.bad.good, SILENT_REPLAY.get()
    try:
        SILENT_REPLAY.set(True)
        for left in range(count, 0, -1):
            with suppress(DataError):  # it was raised before
                element = next(items, None)
                if element is not None and type(element[0]) is Raised and element[0].error.lost:
                    run.need(element, "what follows")
                if element is None and not run.stopped.on:
                    raise StateError(
                        f"next() needs the data that was there before, got an input that ends {left} elements before "
                        "the position to continue from"
                    )
    except BaseException:
        close(items)
        raise
    finally:
        run.bad.good = good
        SILENT_REPLAY.set(before)
