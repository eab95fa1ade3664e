"""policy: applies `Options.on_error` in a step that gathers elements: into a batch, a window, a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..element import Element, Raised, replaced
from ..own_bytes import keep

__all__ = ["ErrorPolicy"]


class ErrorPolicy:
    """Decides about bad elements: "raise" passes their errors on, "skip" leaves them out, "replace" replaces them.

    The last good element replaces a bad one; the first good one replaces those before it.

    Args:
        on_error: `Options.on_error`.
        leave_out: called with each bad element that is left out or replaced.
        stopped: whether the run has been stopped.
        ranked: whether other ranks make as many steps: under "replace" nothing may be left out.
        lacks: see `Run.lacks`.
        refuse: see `Run.refuse`.

    Attributes:
        last: the columns of the last good element, under "replace". A step that does not call `good` sets it before it
            calls `bad`, by `follow`.
        early: bad elements before the first good one, under "replace".
    """

    def __init__(
        self,
        on_error: str,
        leave_out: Callable[[Element], None],
        stopped: Callable[[], bool],
        ranked: bool,
        lacks: Callable[[Element], bool],
        refuse: Callable[[Element, str], None],
    ) -> None:
        self.lacks = lacks
        self._refuse = refuse
        self._lacking: Element | None = None  # bad now, and to replace what follows
        self._ranked = ranked
        self._raises = on_error == "raise"
        self._replaces = on_error == "replace"
        self._leave_out = leave_out
        self._stopped = stopped
        self.last: Any = None
        self.early: list[Element] = []

    def good(self, element: Element) -> list[Element]:
        """The elements to emit for a good one: replacements of `early`, then the element itself."""
        if not self._replaces:
            return [element]
        self.last, self._lacking = element[0], None
        early, self.early = self.early, []
        return [*(replaced(self.last, hole) for hole in early), element]

    def follow(self, element: Element) -> None:
        """Take an element that came last: it replaces bad ones that follow."""
        if type(element[0]) is tuple:
            self.last, self._lacking = element[0], None
        else:
            self.lack(element)

    def lack(self, hole: Element) -> None:
        """Note a bad element that was good before a resume: no other one may replace bad ones in its stead."""
        if self._replaces:
            self._lacking = hole
            if self.early:
                self._replacement_is_gone(hole)

    def _replacement_is_gone(self, hole: Element) -> None:
        self._refuse(hole, "the replacement of a bad element")
        self._lacking = None

    def bad(self, hole: Element) -> list[Element]:
        """The elements to emit for a bad one: a replacement, its error, or nothing."""
        if type(hole[0]) is Raised:
            return [hole]
        if self._raises:
            return [(Raised(hole[0].error, hole[0].known, hole[0].found), *hole[1:])]
        if self._lacking is not None:
            self._replacement_is_gone(self._lacking)
        self._leave_out(hole)
        if self._replaces and self.last is not None:
            return [replaced(self.last, hole)]
        if self._replaces:
            self.early.append(hole)
        return []

    def unreplaced(self) -> Element | None:
        """At the end of the input: the error of a bad element that no good one replaces, if it may not be left out."""
        if not self._ranked or not self.early or self._stopped():
            return None
        hole, stream, position = self.early.pop(0)
        error = hole.error.again()
        error.reason += "; on_error='replace' has no good element of this rank to replace it until the end of the epoch"
        error.args = (error.reason,)
        return Raised(error, hole.known, hole.found), stream, position

    def sifted(self, source: Iterator[Element]) -> Iterator[Element]:
        """Apply the policy to a stream: yields good elements that may be held for long, and `Raised`."""
        for element in source:
            if self._stopped():
                return
            if type(element[0]) is not tuple:
                if self.lacks(element):  # it keeps its place among those that are counted again
                    self.lack(element)
                    yield element
                    continue
                for one in self.bad(element):
                    yield one
            elif self._replaces:
                for one in self.good(keep(element)):
                    yield one
            else:
                yield keep(element)
        while (error := self.unreplaced()) is not None:
            yield error
