"""ignore_errors: bad elements are left out."""

from __future__ import annotations

from collections.abc import Iterator

from ...classes import dataclass
from ..element import Element
from ..run import Context, Flow
from ..state.snapshot import State, part
from ..step import Running

__all__ = ["IgnoreErrorsFlow"]


@dataclass(frozen=True, slots=True)
class IgnoreErrorsFlow:
    """Leaves out holes, which are counted and logged.

    The error of a lost file is passed on and left out at the end of the chain, so that a cache after this step keeps
    no such pass.

    Attributes:
        log: log every hole.
    """

    source: Flow
    log: bool = False

    def open(self, at: Context, state: State = None) -> Running:
        inner = self.source.open(at, part(state))
        return Running(self._good(inner, at), inner)

    def _good(self, inner: Iterator[Element], at: Context) -> Iterator[Element]:
        for element in inner:
            if at.run.stopped.on:
                return
            value = element[0]
            if type(value) is not tuple:
                if at.run.lacks(element):  # it keeps its place among those that are counted again
                    yield element
                    continue
                if not value.error.lost:
                    at.run.leave_out(element, "left out", self.log)
                    continue
                value.ignored = True
            yield element
