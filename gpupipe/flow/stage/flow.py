"""flow: the transform stage of a chain, opened: in place where nothing is an image, else with threads of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from ..access import Access, Through
from ..batching.batcher import BatchFormer, Group, RowFormer
from ..batching.by_index import Batches
from ..batching.resumable import INLINE, Former, Forming, Point
from ..batching.unbatch import UnstackFormer
from ..element import Element
from ..prefetch.channel import Channel, Closed
from ..run import Context
from ..state.snapshot import State, below, drop, number
from ..step import Running
from .assemble import Assembler, Stage
from .job import Finished
from .runner import Work

__all__ = ["StageFlow"]


@dataclass(frozen=True)
class StageFlow(Stage):
    """A stage as a flow."""

    def open(self, at: Context, state: State = None) -> Running:
        threaded = self.program is not None and self.executor is not None
        forming = Forming(
            self.source,
            at,
            below(state, "former"),
            lambda source: self._former(source, at),
            0.0 if threaded else INLINE,
        )
        given = 0 if state is None else number(state, "given")
        items: _Threaded | _Inline = _Threaded(self, at, forming) if threaded else _Inline(self, at, forming)
        drop(items, given, at)
        return items

    def _former(self, source: Iterator[Element], at: Context) -> Former:
        if self.how == "batch":
            return BatchFormer(source, self.size, self.drop, at.run, self.aligned, self.ignores)
        if self.how == "rows":
            return RowFormer(source, self.size, at.run)
        assert self.host is not None
        return UnstackFormer(source, self.host.compile(at), at.run, self.aligned)

    def access(self, at: Context) -> Access:
        return Batches(self, at) if self.how == "batch" else Through(self, at)


class _Inline(Running):
    """A stage without images: runs where it is asked."""

    def __init__(self, flow: StageFlow, at: Context, forming: Forming) -> None:
        self._assembler = Assembler(flow, at)
        self._forming = forming
        self.source = forming.source
        self._before: Point | None = None  # the item whose elements are given
        self._given = 0
        self._ready: deque[Element] = deque()

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
            self._ready.extend(self._assembler.deliver(group, None, ()))
        self._given += 1
        element = self._ready.popleft()
        if not self._ready:
            self._before = None
        return element

    def snapshot(self) -> State:
        """Where the former stands, and how many elements of the last group were given."""
        if self._before is None:
            return {"former": self._forming.exact().state(), "given": 0}
        return {"former": self._before.state(), "given": self._given}


class _Threaded(Running):
    """A stage with images: feeder and runner threads, a channel of what is finished."""

    def __init__(self, flow: StageFlow, at: Context, forming: Forming) -> None:
        assert flow.program is not None and flow.executor is not None
        settings = at.run.settings
        self._items: deque[Element] = deque()
        self._before = self._after = forming.point()
        self._given = 0
        self._whole = True
        self._out: Channel[Finished] = Channel(flow.ready, settings.host_memory)
        at.run.holds(self._out, f"{flow.label}({flow.size})")
        self._work = Work(flow, at, forming, self._out)
        self._run = at.run
        self._run.on_close(self._end)
        self.source = forming.source
        self._started = False

    def __next__(self) -> Element:
        if not self._started:
            self._started = True
            self._work.start()
        while not self._items:
            try:
                done = self._out.get()
            except Closed:
                self.close()
                raise StopIteration from None
            if done.before is not self._before:
                self._before, self._given = done.before, 0
            self._items.extend(done.elements)
            self._whole = done.after is not None
            if done.after is not None:
                self._after = done.after
        self._given += 1
        return self._items.popleft()

    def snapshot(self) -> State:
        """Where the former stood before what was given last, and how much of it was given."""
        if self._whole and not self._items:
            return {"former": self._after.state(), "given": 0}
        return {"former": self._before.state(), "given": self._given}

    def close(self) -> None:
        """Stop both threads. The feeder closes the input, if it was started."""
        self._end()
        self._items.clear()
        if not self._work.started:
            super().close()

    def _end(self, wait: bool = True) -> None:
        """Stop both threads and wait for them."""
        self._out.drop()
        self._work.stop(wait)
        self._run.forget(self._end)
