"""stall: warnings about steps that take many elements without giving any, so that no chain hangs silently."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic, sleep

from ..classes import dataclass
from ..log import logger
from .element import Element
from .run import Context, Flow
from .state.snapshot import State, part
from .step import Running

__all__ = ["SECONDS", "SOMEWHERE", "StallWatch", "Watch", "Where"]

SECONDS = 10.0
"""Seconds without an element after which a step is reported; each further report waits twice as long as the last."""


_EVERY = 1024
"""Dropped elements between two looks at the clock; within the first 1024 it is read at 1, 2, 4, 8, ..."""


_GIVES_WAY = 8192
"""Dropped elements after which other threads are let run: on idle cores a loop that gives nothing can keep them from
the GIL for many seconds, `close()` among them. A pause costs 0.06 ms, 1 % of the fastest of such loops."""


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

    Attributes:
        count: elements taken since the last one given, which `StallWatch` counts.
    """

    __slots__ = ("_pause", "_seconds", "_since", "_spoken", "_what", "_where", "count")

    def __init__(self, where: Where, seconds: float | None = None, what: str = "elements") -> None:
        self._where = where
        self._what = what
        self._seconds = SECONDS if seconds is None else seconds
        self._since = self._spoken = 0.0
        self._pause = self._seconds
        self.count = 0

    def nothing(self, count: int) -> None:
        """Note that `count` elements in a row were taken and none given; called with 1, 2, 3, ..."""
        if count & (count - 1) and count % _EVERY:
            return
        if not count % _GIVES_WAY:
            sleep(1e-6)
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


@dataclass(frozen=True, slots=True)
class StallWatch:
    """The elements on one side of a step that is watched from outside. The input side ends when the run is stopped.

    Attributes:
        source: the input of the step, or the step itself.
        watch: of the step, shared by both sides.
        given: whether these are the elements that the step gives.
    """

    source: Flow
    watch: Watch
    given: bool

    def open(self, at: Context, state: State = None) -> Running:
        inner = self.source.open(at, part(state))
        return Running(self._given(inner) if self.given else self._taken(inner, at), inner)

    def _taken(self, inner: Iterator[Element], at: Context) -> Iterator[Element]:
        watch, stopped = self.watch, at.run.stopped
        for element in inner:
            yield element
            if watch.count:
                watch.nothing(watch.count)
                if stopped.on:
                    return
            watch.count += 1

    def _given(self, inner: Iterator[Element]) -> Iterator[Element]:
        watch = self.watch
        for element in inner:
            watch.count = 0
            yield element
