"""channel: a queue between two threads, bounded in items and in bytes, that can be closed from both sides."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Generic, TypeVar

from ...threads import Room
from ...timing import TRACKER, Log
from ..counters import Gauge
from ..tuning import Tuned

__all__ = ["Channel", "Closed"]

T = TypeVar("T")


class Closed(Exception):
    """The other side has closed the channel."""


class Channel(Generic[T]):
    """A first-in, first-out queue.

    Args:
        items: how many items may wait, >= 1; may change if it is a `Tuned`.
        limit: how many bytes may wait; one item always may, however large.
        gauge: counts how full it is; by default one of its own.
    """

    def __init__(self, items: int | Tuned, limit: int = 1 << 62, gauge: Gauge | None = None) -> None:
        self._most = items if isinstance(items, Tuned) else Tuned("", "", items, items, 1)
        self._gauge = gauge or Gauge(self._most.value)
        tracker = TRACKER.get()
        self._log: Log | None = None
        if tracker is not None:
            self._log = Log(self._gauge.step, self._gauge.line, self._most.value)
            tracker.logs.append(self._log)
        self._items: deque[tuple[T, int]] = deque()
        self._room = Room()
        self._limit = limit
        self._bytes = 0
        self._closed = False
        self._failure: BaseException | None = None

    def put(self, item: T, size: int = 0) -> None:
        """Wait for room, append the item, and wait for room for another, so that no item is made before it has room.

        Raises:
            Closed: the consumer has closed the channel.
        """
        came = 0.0 if self._log is None else perf_counter()
        with self._room:
            if self._full(size):
                self._gauge.full += self._wait_while(lambda: self._full(size))
            if self._closed:
                raise Closed
            self._items.append((item, size))
            self._bytes += size
            self._room.notify_all()
            if len(self._items) >= self._most.value:
                self._gauge.full += self._wait_while(lambda: len(self._items) >= self._most.value)
            if self._closed:
                raise Closed
        if self._log is not None:
            self._log.puts.append((came, perf_counter()))

    def get(self) -> T:
        """Wait for the oldest item and take it. Items put before the end are delivered first.

        Raises:
            Closed: no item is left, and none will come.
        """
        came = 0.0 if self._log is None else perf_counter()
        with self._room:
            gauge = self._gauge
            gauge.fill += len(self._items)
            if not self._items:
                gauge.empty += self._wait_while(lambda: not self._items)
                if not self._items:
                    if self._failure is not None:
                        failure, self._failure = self._failure, None
                        raise failure
                    raise Closed
            item, size = self._items.popleft()
            gauge.taken += 1
            self._bytes -= size
            self._room.notify_all()
        if self._log is not None:
            self._log.taken_by(came, perf_counter())
        return item

    def _full(self, size: int) -> bool:
        return bool(self._items) and (len(self._items) >= self._most.value or self._bytes + size > self._limit)

    def _wait_while(self, blocked: Callable[[], bool]) -> float:
        """Wait, at most until the channel is closed; return the seconds."""
        started = perf_counter()
        while not self._closed and blocked():
            self._room.wait()
        return perf_counter() - started

    def ready(self) -> bool:
        """Whether `get` returns without waiting."""
        with self._room:
            return bool(self._items) or self._closed

    def buffer_usage(self) -> tuple[int, int]:
        """Return the number of waiting items, and their bytes."""
        with self._room:
            return len(self._items), self._bytes

    def fail(self, error: BaseException) -> None:
        """End the channel with an exception, which `get` raises after the items put before."""
        with self._room:
            self._failure = error
            self._closed = True
            self._room.notify_all()

    def finish(self) -> None:
        """End the channel: no more items will be put."""
        with self._room:
            self._closed = True
            self._room.notify_all()

    def drop(self) -> None:
        """Close the channel and discard the items that wait."""
        with self._room:
            self._closed = True
            self._items.clear()
            self._bytes = 0
            self._room.notify_all()
