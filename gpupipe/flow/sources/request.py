"""request: the elements of one call of a preprocessor."""

from __future__ import annotations

from ...classes import dataclass
from ..run import Context
from ..state.snapshot import Counted, State
from ..step import Running

__all__ = ["RequestFlow"]


@dataclass(frozen=True, slots=True)
class RequestFlow:
    """The elements that the context holds as its innermost parameter. The flow itself holds nothing of a call."""

    def open(self, at: Context, state: State = None) -> Running:
        return Counted(iter(at.params[-1]))
