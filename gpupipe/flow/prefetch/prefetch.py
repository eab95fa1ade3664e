"""prefetch: elements made ahead by a thread."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from time import perf_counter, sleep
from typing import Any

from ...extract.images.decode import MOST_PIXELS
from ...extract.storage.waiting import LIMITS
from ...threads import Thread, join
from ..access import Access, access
from ..element import Element
from ..run import Context, Flow
from ..state.checkpoints import SHARE
from ..state.snapshot import State, below, drop, first_state, number
from ..step import Running, close
from .channel import Channel, Closed

__all__ = ["PrefetchFlow"]


@dataclass(frozen=True, slots=True)
class PrefetchFlow:
    """Elements made ahead by a thread; it starts with the first element asked for."""

    source: Flow
    size: int

    def open(self, at: Context, state: State = None) -> Running:
        return _Prefetching(self, at, state)

    def access(self, at: Context) -> Access:
        return access(self.source, at)


class _Prefetching(Running):
    runs_ahead = True

    def __init__(self, flow: PrefetchFlow, at: Context, state: State) -> None:
        self._channel: Channel[Element] = Channel(flow.size, at.run.settings.host_memory)
        at.run.holds(self._channel, f"prefetch({flow.size})")
        self._marks = Marks(state)
        self._run = at.run
        self._thread = Thread(_pump, (flow.source, at, self._channel, self._marks, state), name="gpupipe-prefetch")
        self._started = False
        at.run.on_close(self._end)

    def ready(self) -> bool:
        """Whether the next element is there without waiting; asking starts the thread."""
        self._start()
        return self._channel.ready()

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self._thread.start()

    def __next__(self) -> Element:
        self._start()
        try:
            element = self._channel.get()
        except Closed:
            self.close()
            raise StopIteration from None
        self._marks.given += 1
        return element

    def snapshot(self) -> State:
        """Where the input stood at the last mark, and how many elements were given since."""
        if self._run.any_order:  # what was chosen is known from the moment on when the input is open
            self._start()
            while not self._marks.opened and self._thread.is_alive():
                sleep(0.001)
        return self._marks.state()

    def close(self) -> None:
        """Stop the thread, which closes the input."""
        self._end()

    def _end(self, wait: bool = True) -> None:
        """Stop the thread and wait for it."""
        self._channel.drop()
        if wait:
            join([self._thread])
        self._run.forget(self._end)


class Marks:
    """States of an input that a thread reads ahead, by how many elements it had given. Two threads work with it."""

    def __init__(self, state: State) -> None:
        self.opened = False
        first = (0, below(state, "input"), 0 if state is None else number(state, "drop"))
        self._marks: deque[tuple[int, State, int]] = deque([first])
        self.given = 0  # elements taken from the channel; one thread counts, both read
        self._time = perf_counter()
        self._cost = 0.0
        self._lock = threading.Lock()

    def begin(self, state: State) -> None:
        """The state of the input before its first element, where it says more than the one that was given."""
        if state is not None:
            with self._lock:
                count, _, dropped = self._marks[0]
                self._marks[0] = count, state, dropped
        self.opened = True

    def due(self) -> bool:
        """Whether the reading thread takes another state."""
        return perf_counter() - self._time > SHARE * self._cost

    def mark(self, inner: Any, count: int) -> None:
        """Take the state of the input; it has given `count` elements here."""
        begun = perf_counter()
        state = inner.snapshot()
        self._time = perf_counter()
        self._cost = self._time - begun
        with self._lock:
            self._marks.append((count, state, 0))
            while len(self._marks) > 1 and self._marks[1][0] <= self.given:
                self._marks.popleft()

    def state(self) -> State:
        """The state behind the elements that were taken from the channel."""
        with self._lock:
            while len(self._marks) > 1 and self._marks[1][0] <= self.given:
                self._marks.popleft()
            count, state, dropped = self._marks[0]
        return {"input": state, "drop": dropped + self.given - count}


def _pump(source: Flow, at: Context, channel: Channel[Element], marks: Marks, state: State) -> None:
    """What the prefetch thread runs. It knows the channel, never the iterator."""
    inner: Running | None = None
    MOST_PIXELS.set(at.run.settings.max_pixels)
    LIMITS.set(at.run.limits)
    count = 0
    try:
        inner = source.open(at, below(state, "input"))
        marks.begin(first_state(inner, at))
        items = iter(inner)
        if state is not None:
            drop(items, number(state, "drop"), at)
        for element in items:
            count += 1
            if marks.due():
                marks.mark(inner, count)
            value = element[0]
            size = 0 if type(value) is not tuple else sum(getattr(c, "nbytes", None) or len_of(c) for c in value)
            channel.put(element, size)
        channel.finish()
    except Closed:
        pass
    except BaseException as error:
        channel.fail(error)
    finally:
        close(inner)


def len_of(column: Any) -> int:
    """Bytes of a byte string, 8 for anything small."""
    return len(column) if isinstance(column, bytes) else 8
