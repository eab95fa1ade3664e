"""watch: nothing spins for ever without a word.

A step that takes element after element and gives none may never end: a filter that lets nothing through, an interleave
of empty datasets, `unique` on an endless input that has no new values. tf.data spins there in silence. Here it is said
in the log, with the step, the user's line and the chain, first after ten seconds and then with growing pauses. The step
goes on: nobody can know what it would have found. Ctrl-C and `close()` end it.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

from ..log import logger

__all__ = ["SECONDS", "SOMEWHERE", "Watch", "Where"]

SECONDS = 10.0
"""A step that has given nothing for so long is reported; each pause before the next report is twice the last one."""

_EVERY = 1024
"""How often a step that drops many elements looks at the clock; the first 1024 it looks at 1, 2, 4, 8, ..."""


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
"""Of a flow that was made without a plan."""


class Watch:
    """Looks at the clock while a step gives nothing.

    Args:
        where: the step.
        seconds: the first pause; `SECONDS` unless given.
        what: it takes.
    """

    __slots__ = ("_pause", "_seconds", "_since", "_spoken", "_what", "_where")

    def __init__(self, where: Where, seconds: float | None = None, what: str = "elements") -> None:
        self._where = where
        self._what = what
        self._seconds = SECONDS if seconds is None else seconds
        self._since = self._spoken = 0.0
        self._pause = self._seconds

    def nothing(self, count: int) -> None:
        """One more element was taken and nothing given, `count` of them in a row: 1, 2, 3, ..."""
        if count & (count - 1) and count % _EVERY:
            return
        now = monotonic()
        if count == 1:
            self._since = self._spoken = now
            self._pause = self._seconds
        elif now - self._spoken >= self._pause:
            logger.warning(
                "%s has taken %s %s in a row and given none, for %.3g s; it goes on, Ctrl-C or close() ends it",
                self._where,
                f"{count:,}",
                self._what,
                now - self._since,
            )
            self._spoken = now
            self._pause *= 2
