"""in_flight: elements that a map has given to threads or processes, and which of them may leave next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from ...errors import StateError
from .arrivals import Choices
from .snapshot import State, below

__all__ = ["InWork"]

_T = TypeVar("_T")


class InWork(Generic[_T]):
    """Tasks with the numbers of their elements in the input, the oldest first.

    Args:
        deterministic: they leave in this order, else in any; then the order is a part of the state.
        state: of the step.

    Attributes:
        tasks: (task, number).
    """

    __slots__ = ("_choices", "tasks")

    def __init__(self, deterministic: bool, state: State) -> None:
        self.tasks: deque[tuple[_T, int]] = deque()
        self._choices = None if deterministic else Choices(below(state, "choices"))

    @property
    def places(self) -> list[int]:
        """The numbers of the elements."""
        return [place for _, place in self.tasks]

    def candidates(self, take: Callable[[], bool], stopped: Callable[[], bool]) -> list[tuple[_T, int]]:
        """What may leave next: the oldest; in any order all, or the one that left when this was done before.

        Args:
            take: gives one more element to work; False if there is none.
            stopped: the run ends, so elements may be missing.

        Raises:
            StateError: what left then is not there.
        """
        if self._choices is None:
            return [self.tasks[0]]
        choice = self._choices.following()
        if choice is None:
            return list(self.tasks)
        wanted = min(self.places) + choice
        while self.tasks[-1][1] < wanted and take():
            continue
        found = [one for one in self.tasks if one[1] == wanted]
        if not found and not stopped():
            raise StateError("load_state_dict needs the data that the state was taken over, got fewer elements")
        return found

    def leave(self, one: tuple[_T, int]) -> None:
        """One of them is done."""
        if self._choices is not None:
            self._choices.note(one[1] - min(self.places))
        self.tasks.remove(one)

    def snapshot(self) -> State:
        """What left before which, from now on; nothing where the order is that of the input."""
        return {} if self._choices is None else {"choices": self._choices.snapshot()}
