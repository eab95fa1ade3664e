"""flow: the transform stage as a step: inline if no output is an image or executors are lent, else with threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ...classes import dataclass
from ..access import RandomAccess, Through
from ..batching.batcher import Batcher, MicroBatcher
from ..batching.by_index import Batches
from ..batching.inline import Inline
from ..batching.resumable import AnyBatcher, ResumableBatcher
from ..batching.unbatch import RowsOfBatch
from ..element import Element
from ..prefetch.channel import Channel, Closed
from ..run import SILENT_REPLAY, Context
from ..state.snapshot import State, fast_forward, int_part, part
from ..step import Running
from .assemble import Assembler, Stage
from .direct import Direct
from .job import Delivered
from .runner import StageRunner

__all__ = ["StageFlow"]


@dataclass(frozen=True)
class StageFlow(Stage):
    """The step of a transform stage."""

    def open(self, at: Context, state: State = None) -> Running:
        def batcher(source: Iterator[Element]) -> AnyBatcher:
            return self._batcher(source, at)

        if self.program is None or self.executor is None:
            assembler = Assembler(self, at)
            return Inline(self, at, state, batcher, lambda group: assembler.deliver(group, None, ()))
        if at.run.executors is not None:
            return Inline(self, at, state, batcher, Direct(self, at).deliver)
        return _Threaded(self, at, state, ResumableBatcher(self, at, part(state), batcher))

    def _batcher(self, source: Iterator[Element], at: Context) -> AnyBatcher:
        if self.how == "batch":
            return Batcher(source, self.size, self.drop, at.run, self.aligned, self.ignores)
        if self.how == "rows":
            return MicroBatcher(source, self.size, at)
        assert self.host is not None
        return RowsOfBatch(source, self.host.compile(at), at.run, self, self.aligned)

    def access(self, at: Context) -> RandomAccess:
        return Batches(self, at) if self.how == "batch" else Through(self, at)


class _Threaded(Running):
    """A stage with images: a feeder thread, a runner thread, and a channel of finished elements."""

    def __init__(self, flow: StageFlow, at: Context, state: State, resumable: ResumableBatcher) -> None:
        settings = at.run.settings
        self._items: deque[Element] = deque()
        self._before = self._after = resumable.checkpoint()
        self._given = 0
        self._whole = True
        gauge = at.run.counters.queue(flow.ready, flow.where.step, flow.where.line)
        self._out: Channel[Delivered] = Channel(flow.ready, settings.host_memory, gauge)
        at.run.track_buffer(self._out, f"{flow.label}({flow.size})")
        self._work = StageRunner(flow, at, resumable, self._out)
        self._run = at.run
        self._run.on_close(self._end)
        self.source = resumable.source
        self._started = False
        if state is not None:
            fast_forward(self, int_part(state, "given"), at)

    def __next__(self) -> Element:
        if not self._started:
            self._started = True
            self._work.hold(SILENT_REPLAY.get())
            self._work.start()
        while not self._items:
            try:
                self._work.ask(SILENT_REPLAY.get())
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
        """Return the checkpoint before the item given last, and how many of its elements were given."""
        if self._whole and not self._items:
            return {"source": self._after.state(), "given": 0}
        return {"source": self._before.state(self._given), "given": self._given}

    def close(self) -> None:
        """Stop both threads. The feeder closes the input, if it was started."""
        self._end()
        self._items.clear()
        if not self._work.started:
            super().close()

    def _end(self, wait: bool = True) -> None:
        self._out.drop()
        self._work.stop(wait)
        self._run.forget(self._end)
