"""watched: a watch around a step that has none of its own: one flow below it counts, one above it starts anew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .base import Context, Element, Flow
from .elements import Wrapped
from .state import State, below
from .watch import Watch

__all__ = ["GivenFlow", "TakenFlow", "Watched"]


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

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        inner = self.source.open(at, below(state))
        return Wrapped(self._taken(inner, at), inner)

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

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        inner = self.source.open(at, below(state))
        return Wrapped(self._given(inner), inner)

    def _given(self, inner: Iterator[Element]) -> Iterator[Element]:
        watched = self.watched
        for element in inner:
            watched.count = 0
            yield element
