"""arrivals: what came first where elements come in any order, so that a chain that goes on in the past does the same.

Who chooses keeps a log of it while it is open (`Choices`). A step that opens its input again and again knows how each
of the iterators began (`Begins`).
"""

from __future__ import annotations

import weakref
from array import array
from collections import deque
from dataclasses import dataclass
from typing import Any

from ...errors import StateError
from ..run import Context
from .snapshot import Late, Refused, State, as_number, integers_json, these_integers

__all__ = ["Begins", "Choices", "Full"]

KEPT = 1 << 21
"""Choices that are kept at least, 8 bytes each."""


_BEGIN = 128
"""What a begin takes, in choices."""


class Choices:
    """Which of several elements came first, each time, so that a chain that goes on in the past takes the same ones.

    Args:
        state: what `snapshot` gave: choices to be followed.
    """

    __slots__ = ("__weakref__", "_base", "_log", "_next")

    def __init__(self, state: State = None) -> None:
        self._log = array("Q", () if state is None else these_integers(state))
        self._base = 0
        self._next = 0  # of the log and what was cut off it

    def following(self) -> int | None:
        """The choice to be followed next; None where it is free."""
        at = self._next - self._base
        return self._log[at] if at < len(self._log) else None

    def note(self, choice: int) -> None:
        """What was chosen."""
        if self._next - self._base == len(self._log):
            self._log.append(choice)
        self._next += 1
        if len(self._log) > 2 * KEPT and self._next - self._base > 2 * KEPT:
            del self._log[:KEPT]
            self._base += KEPT

    @property
    def kept(self) -> int:
        """How many choices are kept."""
        return len(self._log)

    def drop(self) -> None:
        """Keep none of the choices so far: who needs them has no state any more."""
        del self._log[: self._next - self._base]
        self._base = self._next

    def snapshot(self) -> State:
        """The choices from now on, known when they are written down."""
        return _Since(self, self._next)

    def since(self, place: int) -> State:
        """The choices from a place on.

        Raises:
            StateError: it is too far back.
        """
        if place < self._base:
            raise StateError(
                f"state_dict needs the last {KEPT} choices of a step in any order, it needs more of them here"
            )
        return integers_json(self._log[place - self._base :])


@dataclass(frozen=True, slots=True)
class _Since(Late):
    choices: Choices
    place: int

    def json(self) -> Any:
        return self.choices.since(self.place)


class Begins:
    """The begins of what a step opens one after the other, where that gives what is ready first.

    What was chosen is kept by who chose it, while it is open. A step that holds elements goes back to where they came
    from; what was opened since then has to make the same choices once more. So every state knows what follows it, and
    nothing else does: begins that no state leads to any more are forgotten.

    Args:
        at: where it is opened.
        state: what `snapshot` gave.
    """

    __slots__ = ("_any", "_kept", "_last", "_left", "_now", "_opened", "_size")

    def __init__(self, at: Context, state: State = None) -> None:
        self._any = at.run.any_order
        self._now: list[weakref.ref[Choices]] = []  # who chooses in what was opened last
        self._kept: deque[tuple[weakref.ref[Choices], int]] = deque()  # ... and before, and how much each keeps
        self._size = 0
        self._opened = 0
        self._left: dict[int, State] = {}
        self._last = _Begin()
        for entry in () if state is None else state:
            place, begin = entry
            self._left[as_number(place, "begins")] = begin

    def next(self, ahead: int = 0) -> State:
        """The state that the next one, or one behind it, is opened with; None where its choices are free."""
        return self._left.get(self._opened + ahead)

    def opened(self, inner: Any) -> None:
        """The next one was opened, and is what elements come from now."""
        self._left.pop(self._opened, None)
        if self._any:
            state = inner.snapshot()
            found = choosing(state)
            if found:
                last = self._last
                last.place, last.state = self._opened, state
                self._last = last.later = _Begin()
                self._bound([weakref.ref(one) for one in found if isinstance(one, Choices)])
        self._opened += 1

    def _bound(self, now: list[weakref.ref[Choices]]) -> None:
        """Let go of the oldest choices where somebody needs too many of them, so that memory has a bound."""
        for last in self._now:
            choices = last()
            size = _BEGIN + (0 if choices is None else choices.kept)
            self._kept.append((last, size))
            self._size += size
        self._now = now
        while self._size > KEPT:
            last, size = self._kept.popleft()
            self._size -= size
            choices = last()
            if choices is not None:
                choices.drop()

    def snapshot(self) -> State:
        """The begins from now on, known when they are written down."""
        return _Later(self, self._last, self._opened) if self._any else None

    def left(self) -> list[tuple[int, State]]:
        """Those of the state that were not opened yet, by the number that they will have."""
        return list(self._left.items())


@dataclass(frozen=True, slots=True)
class Full(Late):
    """The input of a cache that is full: none, and in what order it gives its elements is settled."""

    def json(self) -> Any:
        return None


class _Begin:
    """What was opened as number `place`; empty until it is. Each knows the next one, and nobody the one before."""

    __slots__ = ("later", "place", "state")

    def __init__(self) -> None:
        self.place = 0
        self.state: State = None
        self.later: _Begin | None = None


@dataclass(frozen=True, slots=True)
class _Later(Late):
    begins: Begins
    last: _Begin
    opened: int

    def json(self) -> Any:
        found = []
        begin = self.last
        while begin.later is not None:
            found.append([begin.place - self.opened, begin.state])
            begin = begin.later
        return found + [[place - self.opened, state] for place, state in self.begins.left()]


def choosing(state: State) -> list[Any]:
    """What in a snapshot has a say in what comes first: choices, begins of others, and what has no state."""
    if isinstance(state, _Since):
        return [state.choices]
    if isinstance(state, (_Later, Full, Refused)):
        return [state]
    if isinstance(state, Late):
        return choosing(state.json())
    if isinstance(state, dict):
        return [found for part in state.values() for found in choosing(part)]
    if isinstance(state, (list, tuple)):
        return [found for part in state for found in choosing(part)]
    return []
