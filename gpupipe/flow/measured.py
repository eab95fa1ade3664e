"""measured: a step whose time is measured, while `Dataset.profile` runs."""

from __future__ import annotations

from typing import ClassVar

from ..classes import dataclass
from ..timing import TRACKER, Meter, Tracker
from .access import RandomAccess, access
from .element import Element
from .run import Context, Flow
from .state.snapshot import State
from .step import Running

__all__ = ["Measured", "measured"]


@dataclass(frozen=True, slots=True)
class Measured:
    """The elements of a step, unchanged. States do not contain it.

    Attributes:
        source: the step.
        meter: counts its time, without that of its inputs.
    """

    source: Flow
    meter: Meter
    unseen: ClassVar[bool] = True

    def open(self, at: Context, state: State = None) -> Running:
        tracker = TRACKER.get()
        if tracker is None:
            return self.source.open(at, state)
        clock = tracker.here()
        clock.enter(self.meter)
        try:
            return _Timed(self.source.open(at, state), self.meter, tracker)
        finally:
            clock.leave(0)

    def access(self, at: Context) -> RandomAccess:
        return access(self.source, at)


class _Timed(Running):
    def __init__(self, inner: Running, meter: Meter, tracker: Tracker) -> None:
        self.source = inner
        self.runs_ahead = inner.runs_ahead
        self._items = iter(inner)
        self._meter = meter
        self._here = tracker.here

    def __next__(self) -> Element:
        clock, given = self._here(), 0
        clock.enter(self._meter)
        try:
            element = next(self._items)
            given = 1
            return element
        finally:
            clock.leave(given)

    def ready(self) -> bool:
        return self.source is None or self.source.ready()

    def snapshot(self) -> State:
        return None if self.source is None else self.source.snapshot()


def measured(flow: Flow, step: str, line: str = "", kind: str = "step") -> Flow:
    """The flow, measured if a profile is being made."""
    return flow if TRACKER.get() is None else Measured(flow, Meter(step, line, kind))
