"""inline: groups of elements that become elements where they are asked for, without threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from ..element import Element
from ..run import Context, Flow
from ..state.snapshot import State, below, drop, number
from ..step import Running
from .batcher import Group
from .resumable import Former, Forming, Point

__all__ = ["Inline"]


class Inline(Running):
    """What a former gives, made into elements on the thread that asks.

    Args:
        source: the input.
        at: where it is opened.
        state: what `snapshot` gave.
        former: makes the former of the running input.
        deliver: the elements that a group becomes.
    """

    def __init__(
        self,
        source: Flow,
        at: Context,
        state: State,
        former: Callable[[Iterator[Element]], Former],
        deliver: Callable[[Group], list[Element]],
    ) -> None:
        self._forming = Forming(source, at, below(state), former)
        self.source = self._forming.source
        self._deliver = deliver
        self._before: Point | None = None  # the item whose elements are given
        self._given = 0
        self._ready: deque[Any] = deque()
        if state is not None:
            drop(self, number(state, "given"), at)

    def __next__(self) -> Element:
        while not self._ready:
            before = self._forming.point()
            group = self._forming.next()
            if group is None:
                self._before = None
                raise StopIteration
            self._before, self._given = before, 0
            if not isinstance(group, Group):
                self._before = None
                return group
            self._ready.extend(self._deliver(group))
        self._given += 1
        element: Element = self._ready.popleft()
        if not self._ready:
            self._before = None
        return element

    def snapshot(self) -> State:
        """Where the former stands, and how many elements of the last group were given."""
        if self._before is None:
            return {"source": self._forming.exact().state(), "given": 0}
        return {"source": self._before.state(self._given), "given": self._given}
