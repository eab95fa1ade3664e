"""flat_map: the elements of the dataset of each element, one dataset after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..access import Access, in_turn
from ..element import Element
from ..run import Context, Flow
from ..stall import SOMEWHERE, Watch, Where
from ..state.arrivals import Begins
from ..state.checkpoints import Tape, chosen
from ..state.snapshot import State, below
from ..step import Running, close
from .inner import Inner, inner_accesses, open_inner

__all__ = ["FlatMapFlow"]


@dataclass(frozen=True, slots=True)
class FlatMapFlow:
    """One inner dataset after the other."""

    source: Flow
    inner: Inner
    where: Where = SOMEWHERE

    def open(self, at: Context, state: State = None) -> Running:
        return _FlatMapped(self, at, state)

    def access(self, at: Context) -> Access:
        return in_turn(inner_accesses(self.source, self.inner, at))


class _FlatMapped(Running):
    def __init__(self, flow: FlatMapFlow, at: Context, state: State) -> None:
        self._flow = flow
        self._at = at
        self._tape = Tape(flow.source, at, below(state, "outer"))
        self._begins = Begins(at, below(state, "begins"))
        self._opened: Running | None = None
        if state is not None and below(state, "open"):
            begin = self._tape.count
            outer = chosen(self._tape.items, [begin], begin, begin + 1, at).get(begin)
            if outer is not None:  # else it was stopped
                self._opened = open_inner(flow.inner, at, outer, below(state, "inner"))
        self.items = self._elements()

    def _elements(self) -> Iterator[Element]:
        tape, at = self._tape, self._at
        watch, empty = Watch(self._flow.where), 0
        try:
            while True:
                opened = self._opened
                if opened is None:
                    element = next(tape.items, None)
                    if element is None:
                        return
                    opened = self._opened = open_inner(self._flow.inner, at, element, self._begins.next())
                    self._begins.opened(opened)
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
                if tape.due():
                    tape.mark()
                    tape.forget(tape.count)
                if empty:
                    watch.nothing(empty)
                    if at.run.stopped.is_set():
                        return
        finally:
            close(tape.inner)

    def snapshot(self) -> State:
        """The place of the outer element in hand, and where its dataset stands."""
        opened = self._opened
        outer = self._tape.state(None if opened is None else self._tape.count - 1)
        inner = None if opened is None else opened.snapshot()
        return {"outer": outer, "open": opened is not None, "inner": inner, "begins": self._begins.snapshot()}

    def close(self) -> None:
        """Close the dataset at hand and the outer elements."""
        close(self.items)
        close(self._opened)
        close(self._tape.inner)
