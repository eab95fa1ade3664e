"""flat_map: the elements of the dataset of each element, one dataset after the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...classes import dataclass
from ...plan.index import ENDLESS
from ..access import RandomAccess, joined
from ..element import Element
from ..run import SILENT_REPLAY, Context, Flow
from ..stall import SOMEWHERE, Watch, Where
from ..state.checkpoints import CheckpointedInput
from ..state.snapshot import State, part
from ..step import Running, close
from .inner import Inner, inner_accesses, open_inner

__all__ = ["FlatMapFlow"]


@dataclass(frozen=True, slots=True)
class FlatMapFlow:
    """The inner datasets one after the other."""

    source: Flow
    inner: Inner
    where: Where = SOMEWHERE

    def open(self, at: Context, state: State = None) -> Running:
        return _FlatMapped(self, at, state)

    def access(self, at: Context) -> RandomAccess:
        inner = inner_accesses(self.source, self.inner, at)
        found = joined(inner)
        if found.size != ENDLESS:
            found.parts = np.array([one.size for one in inner], np.int64)
        return found


class _FlatMapped(Running):
    def __init__(self, flow: FlatMapFlow, at: Context, state: State) -> None:
        self._flow = flow
        self._at = at
        self._input = CheckpointedInput(flow.source, at, part(state))
        self._opened: Running | None = None
        before = SILENT_REPLAY.get()
        try:
            SILENT_REPLAY.set(True)
            for outer, _ in self._input.recovered:
                self._opened = open_inner(flow.inner, at, outer, state["inner"])
        finally:
            SILENT_REPLAY.set(before)
        self.items = self._elements()

    def _elements(self) -> Iterator[Element]:
        source, at = self._input, self._at
        watch, empty = Watch(self._flow.where), 0
        try:
            while True:
                opened = self._opened
                if opened is None:
                    element = next(source.items, None)
                    if element is None:
                        return
                    opened = self._opened = open_inner(self._flow.inner, at, element)
                items = iter(opened)
                try:
                    empty += 1
                    for first in items:
                        empty = 0
                        yield first
                        for element in items:
                            yield element
                finally:
                    close(opened)
                self._opened = None
                if source.due():
                    source.checkpoint(source.count)
                if empty:
                    watch.nothing(empty)
                    if at.run.stopped.on:
                        return
        finally:
            close(source.inner)

    def snapshot(self) -> State:
        """The current outer element, and the state of its dataset."""
        opened = self._opened
        outer = () if opened is None else (self._input.count - 1,)
        return {"source": self._input.holding(outer), "inner": None if opened is None else opened.snapshot()}

    def close(self) -> None:
        """Close the current dataset and the outer elements."""
        close(self.items)
        close(self._opened)
        close(self._input.inner)
