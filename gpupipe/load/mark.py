"""mark: the last state that an iterator took of its flow, so that one which is interrupted can go on exactly."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from ..errors import DataError, StateError
from ..flow.run import SILENT_REPLAY, Run
from ..flow.state.checkpoints import interval
from ..flow.state.snapshot import State
from ..flow.step import close

__all__ = ["Mark", "pass_over"]

SELDOM = 4
"""Between two states there are so many times the elements that are between two checkpoints of a step."""


class Mark:
    """A state of a flow, and how many elements it has given since.

    Attributes:
        place: the state, and the number of elements delivered by the iterator at that place; one less for each element
            since then that was none to deliver, as a bad one that was left out.
        look: the number of delivered elements at which `move` takes a new one.

    Args:
        state: where the flow begins.
        delivered: elements that the iterator had delivered there.
    """

    __slots__ = ("look", "place")

    def __init__(self, state: State, delivered: int) -> None:
        self.place: tuple[State, int] = state, delivered
        self.look = delivered + 1

    def passed(self) -> None:
        """An element of the flow is done with that was none to deliver."""
        state, delivered = self.place
        self.place = state, delivered - 1

    def stay(self) -> None:
        """Take no other state."""
        self.look = sys.maxsize

    def move(self, items: Any, delivered: int, rows: int) -> None:
        """Take a new state.

        Args:
            items: of the flow; nobody is inside.
            delivered: elements of the iterator so far.
            rows: of such an element, if it is a batch.
        """
        try:
            state = items.snapshot()
        except (StateError, RecursionError):
            # Or the steps nest too deep to be asked. Whoever needs a state is told: this one is then followed by more
            # elements.
            self.stay()
            return
        self.place = state, delivered
        self.look = delivered + max(1, SELDOM * interval(state) // max(1, rows))


def pass_over(items: Any, count: int, run: Run) -> None:
    """Make elements again that were delivered before, and forget them.

    Args:
        items: of a flow; they are closed if this fails.
        count: how many.
        run: of the flow; what is bad there was noted before.

    Raises:
        StateError: there are not as many.
    """
    good, before = run.bad.good, SILENT_REPLAY.get()
    try:
        SILENT_REPLAY.set(True)
        for left in range(count, 0, -1):
            with suppress(DataError):  # it was raised before
                if next(items, None) is None and not run.stopped.is_set():
                    raise StateError(
                        f"next() needs the data that was there before: the input ends {left} elements before the place "
                        f"to go on from"
                    )
    except BaseException:
        close(items)
        raise
    finally:
        run.bad.good = good
        SILENT_REPLAY.set(before)
