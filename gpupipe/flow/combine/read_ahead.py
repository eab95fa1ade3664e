"""read_ahead: a flow whose next elements are computed by a thread pool, a few at a time.

Used for the datasets of an `interleave` that call Python: several of them run at once, and nothing else changes. Only
one thread at a time is in an iterator. Elements that are replayed after a restore are computed by the thread that asks
for them, so that bad ones are not reported again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from time import perf_counter
from typing import Any

from ...graph.values import Apply
from ...threads import DaemonPool, Room, snapshot
from ..buffer_sizes import bytes_of_all
from ..element import Element
from ..maps.host_program import HostProgram
from ..maps.peek import PeekedFlow
from ..maps.python_function import PythonFunction
from ..measured import Measured
from ..prefetch.prefetch import PrefetchFlow
from ..run import SILENT_REPLAY, Context, Flow
from ..sources.generator import GeneratorFlow
from ..state.checkpoints import InputAhead
from ..state.snapshot import State
from ..step import Running, close

__all__ = ["ReadAhead", "calls_python"]

_MOST = 64
"""Elements that wait at most, where they are computed quickly."""


_SECONDS = 0.001
"""After this time a thread computes no more than `least` elements ahead."""


class ReadAhead(Running):
    """The elements of a flow, computed ahead.

    Args:
        flow: gives the elements; a thread opens it.
        at: the context in which it is opened.
        pool: the threads.
        least: elements that are computed ahead even if they are slow.
        state: what `state` returned.
        opened: what opening `flow` returns, if it is open already: closed here if no thread has come to it.
    """

    runs_ahead = True

    def __init__(
        self, flow: Flow, at: Context, pool: DaemonPool, least: int, state: State, opened: Running | None = None
    ) -> None:
        self._input = InputAhead(flow, at, state)
        self._opened = opened
        self._at = at
        self._pool = pool
        self._least = least
        self._ready: deque[Element] = deque()
        self._wake = Room()
        self._queued = self._working = self._ended = self._closed = self._waited_for = False
        self._error: BaseException | None = None

    def start(self) -> None:
        """Submit work to the pool, if no thread is working and there is room."""
        if SILENT_REPLAY.get():
            return
        with self._wake:
            busy = self._queued or self._working or self._ended or self._closed or self._error is not None
            if busy or len(self._ready) >= self._least:
                return
            self._queued = True
        try:
            self._pool.submit(self._work)
        except RuntimeError:  # another thread closed the pool just now, and closes this as well
            self._queued = False

    def ready(self) -> bool:
        """Whether the next element, or the end, is there without waiting; always True during a replay."""
        self.start()
        return SILENT_REPLAY.get() or bool(self._ready) or self._ended or self._error is not None

    def __next__(self) -> Element:
        try:
            element = self._ready.popleft()
        except IndexError:
            element = self._awaited()
        self._input.given += 1
        if len(self._ready) < self._least and not self._working:
            self.start()
        return element

    def _awaited(self) -> Element:
        """Wait for the next element."""
        while True:
            with self._wake:
                self._waited_for = True  # before `_ready` is read: a thread checks this after each element
                if self._ready:
                    self._waited_for = False
                    return self._ready.popleft()
                if self._error is not None:
                    error, self._error = self._error, None
                    raise error
                if self._ended or self._closed or self._at.run.stopped.on:
                    raise StopIteration
                if self._queued or self._working:
                    self._wake.wait(0.1)  # a run that is stopped does not notify
                    continue
                here = self._working = SILENT_REPLAY.get()
            if here:
                self._make(1)
            else:
                self.start()

    def _work(self) -> None:
        """Compute some elements, in a thread of the pool."""
        with self._wake:
            self._queued = False
            if self._closed or self._working:
                return
            self._working = True
        self._make(_MOST)

    def _make(self, most: int) -> None:
        """Open the flow and compute up to `most` elements, fewer if they are slow. No other thread may be in it."""
        start = perf_counter()
        ended, failure = False, None
        try:
            source = self._input.input or self._input.open()
            for element in source.items:
                if source.due():
                    source.checkpoint(self._input.given)
                most -= 1
                self._ready.append(element)
                if self._waited_for:
                    with self._wake:
                        self._wake.notify_all()
                count = len(self._ready)
                slow = count >= self._least and perf_counter() - start > _SECONDS
                if most <= 0 or slow or count >= _MOST or self._closed:
                    break
            else:
                ended = True
        except BaseException as error:
            failure = error
        finally:
            with self._wake:
                self._working = False
                self._error = failure
                self._ended = ended
                over = ended or self._closed
                self._wake.notify_all()
            if over:
                self._input.close()

    def state(self) -> State:
        """Return the state after the elements that were given."""
        return self._input.state()

    def buffer_usage(self) -> tuple[int, int]:
        """The number of elements that wait, and their bytes."""
        return bytes_of_all(snapshot(self._ready))

    def close(self) -> None:
        """End the read-ahead; a thread in the flow closes it after the current element."""
        with self._wake:
            if self._closed:
                return
            self._closed = True
            self._ready.clear()
            mine = not self._working and not self._ended
            self._wake.notify_all()
        if mine:
            close(self._opened)
            self._input.close()


def calls_python(flow: Any) -> bool:
    """Whether some step of a flow calls a user's Python function for each element: only these are worth a thread.

    A flow that ends with a prefetch has a thread of its own, which reads ahead as far as the prefetch says.
    """
    while isinstance(flow, PeekedFlow | Measured):
        flow = flow.flow if isinstance(flow, PeekedFlow) else flow.source
    if isinstance(flow, PrefetchFlow):
        return False
    seen: set[int] = set()
    left = [flow]
    while left:
        part = left.pop()
        if isinstance(part, (PythonFunction, GeneratorFlow)):
            return True
        if isinstance(part, HostProgram):
            if any(isinstance(value, Apply) and value.op.name == "py_function" for value in part.values):
                return True
        elif isinstance(part, PeekedFlow):
            left.append(part.flow)
        elif isinstance(part, Sequence) and not isinstance(part, (str, bytes)):
            if len(part) < 100:  # inputs of a step; not the columns of a source
                left.extend(part)
        elif is_dataclass(part) and id(part) not in seen:
            seen.add(id(part))
            left.extend(getattr(part, f.name) for f in fields(part))
    return False
