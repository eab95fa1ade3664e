"""stall: warnings about steps that take many elements without giving any, so that no chain hangs silently."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic

from ..log import logger
from .element import Element
from .run import Context, Flow
from .state.snapshot import State, part
from .step import Running

__all__ = ["SECONDS", "SOMEWHERE", "GivenFlow", "TakenFlow", "Watch", "Watched", "Where"]

SECONDS = 10.0
"""Seconds without an element after which a step is reported; each further report waits twice as long as the last."""


_EVERY = 1024
"""Dropped elements between two looks at the clock; within the first 1024 it is read at 1, 2, 4, 8, ..."""


@dataclass(frozen=True, slots=True)
class Where:
    """A step of a chain, in words.

    Attributes:
        step: with its parameters.
        line: ``file:line`` where the user wrote it.
        chain: the steps up to this one.
    """

    step: str = "a step"
    line: str = "an unknown line"
    chain: str = ""

    def __str__(self) -> str:
        return f"{self.step} at {self.line}{f' (chain: {self.chain})' if self.chain else ''}"


SOMEWHERE = Where()
"""For a flow that was made without a plan."""


class Watch:
    """Logs a warning while a step takes elements and gives none.

    Args:
        where: the step.
        seconds: before the first warning; `SECONDS` unless given.
        what: the items that the step takes, for the message.
    """

    __slots__ = ("_pause", "_seconds", "_since", "_spoken", "_what", "_where")

    def __init__(self, where: Where, seconds: float | None = None, what: str = "elements") -> None:
        self._where = where
        self._what = what
        self._seconds = SECONDS if seconds is None else seconds
        self._since = self._spoken = 0.0
        self._pause = self._seconds

    def nothing(self, count: int) -> None:
        """Note that `count` elements in a row were taken and none given; called with 1, 2, 3, ..."""
        if count & (count - 1) and count % _EVERY:
            return
        now = monotonic()
        if count == 1:
            self._since = self._spoken = now
            self._pause = self._seconds
        elif now - self._spoken >= self._pause:
            logger.warning(
                "%s has taken %s %s in a row and given none for %.3g s; it continues, Ctrl-C or close() ends it",
                self._where,
                f"{count:,}",
                self._what,
                now - self._since,
            )
            self._spoken = now
            self._pause *= 2


class Watched:
    """What the two flows around a step share.

    Attributes:
        watch: of the step.
        count: elements that it took since the last one that it gave.
    """

    __slots__ = ("count", "watch")

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.count = 0


@dataclass(frozen=True, slots=True)
class TakenFlow:
    """Elements on their way into a step that is watched from outside. They end when the run is stopped."""

    source: Flow
    watched: Watched

    def open(self, at: Context, state: State = None) -> Running:
        inner = self.source.open(at, part(state))
        return Running(self._taken(inner, at), inner)

    def _taken(self, inner: Iterator[Element], at: Context) -> Iterator[Element]:
        watched, stopped = self.watched, at.run.stopped.is_set
        for element in inner:
            yield element
            if watched.count:
                watched.watch.nothing(watched.count)
                if stopped():
                    return
            watched.count += 1


@dataclass(frozen=True, slots=True)
class GivenFlow:
    """What such a step gives."""

    source: Flow
    watched: Watched

    def open(self, at: Context, state: State = None) -> Running:
        inner = self.source.open(at, part(state))
        return Running(self._given(inner), inner)

    def _given(self, inner: Iterator[Element]) -> Iterator[Element]:
        watched = self.watched
        for element in inner:
            watched.count = 0
            yield element
