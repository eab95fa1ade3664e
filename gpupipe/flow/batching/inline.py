"""inline: groups of elements that are computed on the thread that asks for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from ..element import Element
from ..run import Context
from ..state.snapshot import State, fast_forward, int_part, part
from ..step import Running
from .batcher import Group
from .resumable import AnyBatcher, Checkpoint, ResumableBatcher

__all__ = ["Inline"]


class Inline(Running):
    """Runs a batcher and computes its groups, on the thread that asks for elements.

    Args:
        step: the step.
        at: where it is opened.
        state: what `snapshot` returned.
        batcher: makes the batcher of the running input.
        deliver: returns the elements that a group becomes.
    """

    def __init__(
        self,
        step: Any,
        at: Context,
        state: State,
        batcher: Callable[[Iterator[Element]], AnyBatcher],
        deliver: Callable[[Group], list[Element]],
    ) -> None:
        self._resumable = ResumableBatcher(step, at, part(state), batcher)
        self.source = self._resumable.source
        self._deliver = deliver
        self._before: Checkpoint | None = None  # before the group whose elements are being given
        self._given = 0
        self._ready: deque[Any] = deque()
        if state is not None:
            fast_forward(self, int_part(state, "given"), at)

    def __next__(self) -> Element:
        while not self._ready:
            before = self._resumable.checkpoint()
            item = self._resumable.next()
            if item is None:
                raise StopIteration
            if not isinstance(item, Group):
                return item
            self._before, self._given = before, 0
            self._ready.extend(self._deliver(item))
        self._given += 1
        element: Element = self._ready.popleft()
        if not self._ready:
            self._before = None
        return element

    def snapshot(self) -> State:
        """The batcher's state, and how many elements of the last group were given."""
        if self._before is None:
            return {"source": self._resumable.exact().state(), "given": 0}
        return {"source": self._before.state(self._given), "given": self._given}
