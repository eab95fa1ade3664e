"""waiting: reads that may never return, and what ends the wait for them.

A network file system that is gone blocks its readers forever, out of reach of `close()`. So the limits of a run travel
with its threads (`LIMITS`), and every request to a storage is made under them: once the run is stopped no request
starts, and with a timeout each runs in a thread of its own, whose caller waits no longer than that. A thread that is
stuck in the system is a daemon and holds nothing but its own request.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar

from gpupipe.errors import RecordError
from gpupipe.threads import Thread
from gpupipe.timing import reading

from ...classes import dataclass

__all__ = ["LIMITS", "Limits", "Reads", "bounded", "pause"]

_T = TypeVar("_T")


MOST_STUCK = 192
"""Unanswered requests that one run leaves behind: all tries of 32 readers. While there are this many, every further one
fails at once, and may be retried."""


MOST_OF_A_FILE = 18
"""Unanswered requests for one file since it last answered: all tries of the three that are made at a time. Each of its
10,000 records would otherwise take the timeout, and a thread."""


class _Request:
    """One call in progress. `answered` is held until there is an answer, or the wait for it ends."""

    __slots__ = ("answered", "args", "error", "file", "fn", "over", "result", "returned")

    def __init__(self, file: str, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.file = file
        self.fn: Callable[..., Any] | None = fn
        self.args = args
        self.result: Any = None
        self.error: BaseException | None = None
        self.returned = False  # the call has returned
        self.over = False  # its caller waits no longer
        self.answered = threading.Lock()
        self.answered.acquire()

    def wake(self) -> None:
        """Release the waiting thread. Safe to call twice."""
        try:
            self.answered.release()
        except RuntimeError:  # it was released before
            return


_Queue = queue.SimpleQueue[_Request | None]


@dataclass(slots=True)
class ReadCounts:
    """The requests of one thread: how many, the bytes they returned, and seconds."""

    requests: int = 0
    bytes: int = 0
    seconds: float = 0.0


class Reads:
    """The requests to storages that a run has made, and what they took; retries and their pauses included."""

    def __init__(self) -> None:
        self._threads: dict[int, ReadCounts] = {}

    def add(self, started: float, size: int) -> None:
        """Count a request of this thread that has just ended.

        Args:
            started: by `perf_counter`.
            size: bytes that it returned.
        """
        ident = threading.get_ident()
        # Of one thread, so without a lock.
        mine = self._threads.get(ident) or self._threads.setdefault(ident, ReadCounts())
        mine.requests += 1
        mine.bytes += size
        mine.seconds += time.perf_counter() - started

    def total(self) -> ReadCounts:
        """The sum over all threads; their seconds may overlap."""
        threads = list(self._threads.values())
        requests, size = sum(one.requests for one in threads), sum(one.bytes for one in threads)
        return ReadCounts(requests, size, sum(one.seconds for one in threads))


FILES = 1 << 16
"""Files whose versions a run remembers, about 200 bytes each."""


class Limits:
    """The limits on the reads of one run, and what they took.

    Args:
        seconds: what one request to a storage may take; None waits as long as the system does.
        stopped: set once the run ends.

    Attributes:
        outer: the limits of the run whose user function started this run, if any.
        reads: the requests so far.
        longest: bytes that a record may have, see `Options.max_record`; None for the default.
        found: the bad elements of the run, which its steps add to from any of its threads.
        changed: files and tags of which an error has said in this epoch that they changed.
        opened: the size and tag of each file that the epoch has opened, when it did so; of up to `FILES` files.
        again: whether the run goes on in an epoch whose files were not compared with those since an interrupt.
    """

    def __init__(self, seconds: float | None, stopped: threading.Event) -> None:
        self.outer = LIMITS.get()
        self.reads = Reads()
        self.longest: int | None = None
        self.found: Any = None
        self.changed: set[tuple[str, str]] = set()
        self.opened: dict[str, tuple[int, str]] = {}
        self.again = False
        self.seconds = seconds
        self.stopped = stopped.is_set
        self._stop = stopped
        # Reentrant: the garbage collector may close a run in a thread that holds this lock.
        self._lock = threading.RLock()
        self._idle: list[_Queue] = []
        self._waiting: set[_Request] = set()
        self._stuck: list[_Request] = []

    def check(self, file: str) -> None:
        """Check that the run is not stopped.

        Raises:
            RecordError: it is stopped.
        """
        if self.stopped():
            raise RecordError("no longer read: its iterator was closed", file=file, stage="read")

    def pause(self, file: str, seconds: float) -> None:
        """Wait, at most until the run or an outer one is stopped.

        Raises:
            RecordError: one of them is stopped.
        """
        until, first = time.monotonic() + seconds, self.outer
        while (left := until - time.monotonic()) > 0 and not self._stop.wait(
            left if first is None else min(left, 0.05)
        ):
            outer = first
            while outer is not None:
                outer.check(file)
                outer = outer.outer
        self.check(file)

    def call(self, file: str, fn: Callable[..., _T], *args: Any) -> _T:
        """Call ``fn(*args)``; abandon it when it times out or the run is stopped.

        Raises:
            RecordError: the call was abandoned.
            Exception: whatever `fn` raises.
        """
        self.check(file)
        if self.seconds is None:
            return fn(*args)
        request = _Request(file, fn, args)
        with self._lock:
            self._refuse_many(file)
            helper = self._idle.pop() if self._idle else _helper()
            self._waiting.add(request)
        try:
            helper.put(request)
            if not self.stopped():  # `close` wakes the calls it finds waiting; those that come later see this flag
                request.answered.acquire(timeout=self.seconds)
        finally:
            with self._lock:
                self._waiting.discard(request)
                request.over = True
                if not request.returned:
                    self._stuck.append(request)
                if request.returned and not self.stopped():
                    self._idle.append(helper)
                else:
                    helper.put(None)  # its thread ends as soon as the call returns
        if not request.returned:
            self.check(file)
            late = self._late(file, "the storage does not answer")
            late.passing = True
            raise late
        if self._stuck:
            with self._lock:
                for other in self._stuck:
                    if other.file == file:  # the file answers again: the unanswered requests no longer count against it
                        other.file = ""
        error, request.error = request.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error, request  # break the cycle of an error and the frame it passed through
        result: _T = request.result
        return result

    def _refuse_many(self, file: str) -> None:
        """Check that not too many requests are unanswered. The lock is held.

        Raises:
            RecordError: they are; it may be retried, since a server that was silent for a while answers later.
        """
        self._stuck = [other for other in self._stuck if not other.returned]
        of_the_file = sum(other.file == file for other in self._stuck)
        if of_the_file >= MOST_OF_A_FILE or len(self._stuck) >= MOST_STUCK:
            which = f"{of_the_file} for this file" if of_the_file >= MOST_OF_A_FILE else f"{len(self._stuck)}"
            late = self._late(file, f"{which} before it are still unanswered")
            late.passing = True
            raise late

    def close(self) -> None:
        """End every wait and every idle thread. The run must be stopped. Safe to call twice."""
        with self._lock:
            waiting, idle, self._idle = list(self._waiting), self._idle, []
        for request in waiting:
            request.wake()
        for helper in idle:
            helper.put(None)

    def _late(self, file: str, why: str) -> RecordError:
        return RecordError(
            f"a read was given up after {self.seconds:g} s (Options.read_timeout): {why}", file=file, stage="read"
        )


LIMITS: ContextVar[Limits | None] = ContextVar("gpupipe_limits", default=None)
"""The limits of the run that a thread works for; None outside of runs."""


def bounded(file: str, fn: Callable[..., _T], *args: Any) -> _T:
    """Make the request ``fn(*args)`` under the limits of the run that this thread works for.

    Args:
        file: the file that is read, for messages.
        fn: must be safe to abandon: no other code may use what it writes to.
        args: of `fn`.

    Raises:
        RecordError: the request timed out, or the run is closed.
        Exception: whatever `fn` raises.
    """
    limits = LIMITS.get()
    if limits is None:
        return fn(*args)
    started, size, clock = time.perf_counter(), 0, reading()
    try:
        result = limits.call(file, fn, *args)
        if isinstance(result, bytes):
            size = len(result)
        return result
    finally:
        limits.reads.add(started, size)
        if clock is not None:
            clock.leave()


def pause(file: str, seconds: float) -> None:
    """Wait before a retry, at most until the run that this thread works for is closed.

    Raises:
        RecordError: the run is closed.
    """
    limits = LIMITS.get()
    if limits is None:
        time.sleep(seconds)
        return
    started, clock = time.perf_counter(), reading()
    try:
        limits.pause(file, seconds)
    finally:
        limits.reads.add(started, 0)
        if clock is not None:
            clock.leave(0)


def _helper() -> _Queue:
    """Start a thread that serves requests; return its queue."""
    work: _Queue = queue.SimpleQueue()
    Thread(_serve, (work,), name="gpupipe-read").start()
    return work


def _serve(work: _Queue) -> None:
    """Serve requests until None. The thread holds its queue, never the limits."""
    while (request := work.get()) is not None:
        fn, args = request.fn, request.args
        request.fn, request.args = None, ()
        assert fn is not None
        try:
            result = fn(*args)
        except BaseException as error:
            request.error = error
        else:
            request.result = result
            del result
        request.returned = True
        if request.over:
            request.result = request.error = None
        request.wake()
        del request, fn, args  # keep nothing alive while waiting
