"""stage: the transform stage of a chain, opened: in place where nothing is an image, else with threads of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from .base import Context, Element
from .channel import Channel, Closed
from .elements import close
from .forming import BatchFormer, Former, Group, RowFormer, UnstackFormer
from .groups import Assembler, Stage
from .work import Work

__all__ = ["StageFlow"]


@dataclass(frozen=True)
class StageFlow(Stage):
    """A stage as a flow."""

    def open(self, at: Context) -> Iterator[Element]:
        source = self.source.open(at)
        former: Former
        if self.how == "batch":
            former = BatchFormer(source, self.size, self.drop, at.run, self.aligned, self.ignores)
        elif self.how == "rows":
            former = RowFormer(source, self.size, at.run)
        else:
            assert self.host is not None
            former = UnstackFormer(source, self.host.compile(at), at.run, self.aligned)
        if self.program is None or self.executor is None:
            return _Inline(self, at, former, source)
        return _Threaded(self, at, former, source)


class _Inline:
    """A stage without images: runs where it is asked."""

    def __init__(self, flow: StageFlow, at: Context, former: Former, source: Iterator[Element]) -> None:
        self._assembler = Assembler(flow, at)
        self._former = former
        self._source = source
        self._ready: deque[Element] = deque()

    def __iter__(self) -> Iterator[Element]:
        return self

    def __next__(self) -> Element:
        while not self._ready:
            group = self._former.next()
            if group is None:
                raise StopIteration
            if not isinstance(group, Group):
                return group
            self._ready.extend(self._assembler.deliver(group, None, ()))
        return self._ready.popleft()

    def close(self) -> None:
        """Close the input."""
        close(self._source)


class _Threaded:
    """A stage with images: feeder and runner threads, a channel of what is finished."""

    def __init__(self, flow: StageFlow, at: Context, former: Former, source: Iterator[Element]) -> None:
        assert flow.program is not None and flow.executor is not None
        settings = at.run.settings
        self._items: deque[Element] = deque()
        self._out: Channel[list[Element]] = Channel(max(1, flow.ready), settings.host_memory)
        at.run.holds(self._out, f"{flow.label}({flow.size})")
        self._work = Work(flow, at, former, source, self._out)
        self._run = at.run
        self._forget = self._run.on_close(self.close)
        self._started = False

    def __iter__(self) -> Iterator[Element]:
        return self

    def __next__(self) -> Element:
        if not self._started:
            self._started = True
            self._work.start()
        while not self._items:
            try:
                self._items.extend(self._out.get())
            except Closed:
                self.close()
                raise StopIteration from None
        return self._items.popleft()

    def close(self, wait: bool = True) -> None:
        """Stop both threads and wait for them."""
        self._forget()
        self._items.clear()
        self._out.drop()
        self._work.stop(wait)
