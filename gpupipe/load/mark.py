"""mark: the last state that an iterator took of its flow, so that one which is interrupted can go on exactly."""

from __future__ import annotations

from contextlib import suppress
from time import perf_counter
from typing import Any

from ..errors import DataError, StateError
from ..flow.run import REPLAYING, Run
from ..flow.state.snapshot import State
from ..flow.step import close

__all__ = ["Mark", "pass_over"]

SHARE = 200
"""Between two states there are so many times the seconds that the last one took: 0.5 % of the time."""

SECONDS = 0.05
"""Between two states at least: what is made again after an interrupt, where states cost nothing."""

FAST = 1e-4
"""Elements that take fewer seconds are passed in steps: of these the clock is looked at once in `STEP`."""

STEP = 64


class Mark:
    """A state of a flow, and how many elements it has given since.

    Attributes:
        place: the state, and the number of elements delivered by the iterator at that place; one less for each element
            since then that was none to deliver, as a bad one that was left out.
        look: the number of delivered elements at which `move` is worth calling.

    Args:
        state: where the flow begins.
        delivered: elements that the iterator had delivered there.
    """

    __slots__ = ("_cost", "_looked", "_step", "_taken", "look", "place")

    def __init__(self, state: State, delivered: int) -> None:
        self.place: tuple[State, int] = state, delivered
        self._taken = self._looked = perf_counter()
        self._cost = 0.0
        self._step = 1
        self.look = delivered + 1

    def passed(self) -> None:
        """An element of the flow is done with that was none to deliver."""
        state, delivered = self.place
        self.place = state, delivered - 1

    def move(self, items: Any, delivered: int) -> None:
        """Take a new state if one is due. It costs nothing that can be measured.

        Args:
            items: of the flow; nobody is inside.
            delivered: elements of the iterator so far.
        """
        now = perf_counter()
        self._step = STEP if now - self._looked < FAST * self._step else 1
        self._looked = now
        self.look = delivered + self._step
        if now - self._taken >= max(SECONDS, SHARE * self._cost):
            self.take(items, delivered)

    def take(self, items: Any, delivered: int) -> None:
        """Take a new state."""
        begun = perf_counter()
        try:
            state = items.snapshot()
        except (StateError, RecursionError):
            # Or the steps nest too deep to be asked. Whoever needs a state is told: this one is then followed by more
            # elements.
            self._taken = float("inf")
            return
        self.place = state, delivered
        self._taken = perf_counter()
        self._cost = self._taken - begun


def pass_over(items: Any, count: int, run: Run) -> None:
    """Make elements again that were delivered before, and forget them.

    Args:
        items: of a flow; they are closed if this fails.
        count: how many.
        run: of the flow; what is bad there was noted before.

    Raises:
        StateError: there are not as many.
    """
    good, before = run.bad.good, REPLAYING.get()
    try:
        REPLAYING.set(True)
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
        REPLAYING.set(before)
