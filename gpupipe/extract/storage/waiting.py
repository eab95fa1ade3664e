"""waiting: reads that may never come back, and what ends the wait for them.

A network file system that is gone stops whoever reads from it: for ever, and out of reach of `close()`. So the limits
of a run travel with its threads (`LIMITS`), and every request to a storage is made under them: once the run is stopped
none begins any more, and with a timeout each is made in a thread of its own, for which nobody waits longer than that.
A thread that is stuck in the system is a daemon and holds nothing but its own request.
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

__all__ = ["LIMITS", "Limits", "bounded", "pause"]

_T = TypeVar("_T")


MOST_STUCK = 64
"""Requests without an answer that one run leaves behind; while there are as many, every other one fails at once."""


MOST_OF_A_FILE = 6
"""The same for one file, since it answered last: as many as one request is tried. Each of its 10,000 records would take
the timeout, and a thread."""


class _Request:
    """One call on its way. Whoever asked holds `answered` until there is an answer, or no more hope of one."""

    __slots__ = ("answered", "args", "error", "file", "fn", "over", "result", "returned")

    def __init__(self, file: str, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.file = file
        self.fn: Callable[..., Any] | None = fn
        self.args = args
        self.result: Any = None
        self.error: BaseException | None = None
        self.returned = False  # the call has come back
        self.over = False  # nobody waits for it any more
        self.answered = threading.Lock()
        self.answered.acquire()

    def wake(self) -> None:
        """Let go of whoever waits. Safe to call twice."""
        try:
            self.answered.release()
        except RuntimeError:  # it was woken before
            return


_Queue = queue.SimpleQueue[_Request | None]


class Limits:
    """What ends the reads of one run.

    Args:
        seconds: that one request to a storage may take; None waits as long as the system does.
        stopped: set once the run ends.

    Attributes:
        outer: of the run one of whose functions makes this one.
    """

    def __init__(self, seconds: float | None, stopped: threading.Event) -> None:
        self.outer = LIMITS.get()
        self.seconds = seconds
        self.stopped = stopped.is_set
        self._stop = stopped
        # Reentrant: the garbage collector may close a run in a thread that is just here.
        self._lock = threading.RLock()
        self._idle: list[_Queue] = []
        self._waiting: set[_Request] = set()
        self._stuck: list[_Request] = []

    def check(self, file: str) -> None:
        """Check that the run goes on.

        Raises:
            RecordError: it is stopped.
        """
        if self.stopped():
            raise RecordError("not read any more: its iterator was closed", file=file, stage="read")

    def pause(self, file: str, seconds: float) -> None:
        """Wait, at most until the run is stopped, or one that it works for.

        Raises:
            RecordError: it is stopped.
        """
        until, at = time.monotonic() + seconds, self.outer
        while (left := until - time.monotonic()) > 0 and not self._stop.wait(left if at is None else min(left, 0.05)):
            outer = at
            while outer is not None:
                outer.check(file)
                outer = outer.outer
        self.check(file)

    def call(self, file: str, fn: Callable[..., _T], *args: Any) -> _T:
        """``fn(*args)``, given up when the time is over or the run is stopped.

        Raises:
            RecordError: it was given up; and whatever `fn` raises.
        """
        self.check(file)
        if self.seconds is None:
            return fn(*args)
        request = _Request(file, fn, args)
        with self._lock:
            self._stuck = [other for other in self._stuck if not other.returned]
            of_the_file = sum(other.file == file for other in self._stuck)
            if of_the_file >= MOST_OF_A_FILE or len(self._stuck) >= MOST_STUCK:
                of_which = f"{of_the_file} of this file" if of_the_file >= MOST_OF_A_FILE else f"{len(self._stuck)}"
                raise self._late(file, f"{of_which} before it still have no answer")
            helper = self._idle.pop() if self._idle else _helper()
            self._waiting.add(request)
        try:
            helper.put(request)
            if not self.stopped():  # looked at once more: `close` wakes those who wait, and later ones see the flag
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
                    helper.put(None)  # it ends, as soon as it comes back
        if not request.returned:
            self.check(file)
            late = self._late(file, "the storage does not answer")
            late.passing = True
            raise late
        if self._stuck:
            with self._lock:
                for other in self._stuck:
                    if other.file == file:  # it answers: what hangs was bad luck
                        other.file = ""
        error, request.error = request.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error, request  # no cycle of an error and the frame it went through
        result: _T = request.result
        return result

    def close(self) -> None:
        """End every wait, and the threads that have no request. The run must be stopped. Safe to call twice."""
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
    """``fn(*args)``, a request to a storage, under the limits of the run that this thread works for.

    Args:
        file: that it reads, for messages.
        fn: must be safe to be abandoned: what it writes to belongs to it alone.
        args: for it.

    Raises:
        RecordError: it takes too long, or the run is closed; and whatever `fn` raises.
    """
    limits = LIMITS.get()
    return fn(*args) if limits is None else limits.call(file, fn, *args)


def pause(file: str, seconds: float) -> None:
    """Wait before a request is made again, at most until the run that this thread works for is closed.

    Raises:
        RecordError: it is closed.
    """
    limits = LIMITS.get()
    if limits is None:
        time.sleep(seconds)
    else:
        limits.pause(file, seconds)


def _helper() -> _Queue:
    """Start a thread that answers requests."""
    work: _Queue = queue.SimpleQueue()
    Thread(_serve, (work,), name="gpupipe-read").start()
    return work


def _serve(work: _Queue) -> None:
    """What a thread runs. It knows its queue, never the limits."""
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
        if request.over:  # nobody wants it
            request.result = request.error = None
        request.wake()
        del request, fn, args  # nothing is kept alive while waiting
