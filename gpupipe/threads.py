"""threads: daemon threads that are waited for, but never without limit, and what they and others wait at.

`concurrent.futures.ThreadPoolExecutor` is joined at exit without limit, so a function that never returns would keep the
interpreter alive for ever. A user's function may be such a one.

The user's thread may be cut short anywhere, by Ctrl-C. A `threading.Condition` it is just leaving stays locked then,
and whoever needs it stands still: entering and leaving one is Python code, into which a signal's handler may raise. So
what the user's thread shares with others is guarded by locks of C, and it waits in a `Room`.
"""

from __future__ import annotations

import _thread
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from .log import logger

__all__ = ["PATIENCE", "DaemonPool", "Flag", "Job", "Room", "Thread", "join"]

_T = TypeVar("_T")

PATIENCE = 2.0
"""Seconds to wait for a thread at the end. Only a user's function, or the system, can take that long."""


def join(threads: Sequence[Thread]) -> None:
    """Wait for threads that were told to stop, `PATIENCE` seconds at most for each; say so if one does not end."""
    for thread in threads:
        if thread.ident is None or thread is threading.current_thread():
            continue
        thread._started.wait(PATIENCE)  # it has an ident a moment before it may be waited for
        thread.join(PATIENCE)
        if thread.is_alive():
            logger.warning("%s still runs a function of the chain, or a read, after %.0f s", thread.name, PATIENCE)


# CPython lets others derive from its lock, and has what its own Condition restores it with.
class Room(_thread.RLock):  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    """A lock at which threads wait for one another, as at a `threading.Condition`.

    An exception of a signal's handler leaves it as it should be, wherever it strikes.
    """

    def __init__(self) -> None:
        self._sleepers: list[_thread.LockType] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Let go of the lock, which is held once, until somebody notifies; whether that came in time."""
        sleeper = _thread.allocate_lock()
        sleeper.acquire()
        self._sleepers.append(sleeper)
        mine = 1, _thread.get_ident()
        try:
            self.release()
            return sleeper.acquire(timeout=-1 if timeout is None else timeout)
        finally:
            # Unlike `acquire` it is never cut short.
            self._acquire_restore(mine)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]

    def notify_all(self) -> None:
        """Wake everybody who waits; the lock is held."""
        sleepers, self._sleepers = self._sleepers, []
        for sleeper in sleepers:
            sleeper.release()


class Flag(threading.Event):
    """An event that may be set and waited for where Ctrl-C strikes."""

    def __init__(self) -> None:
        super().__init__()
        self._cond: Any = Room()


class Thread(threading.Thread):
    """A daemon thread that may be started where Ctrl-C strikes: a plain one could wait for ever for who started it.

    Args:
        target: what it runs.
        args: for it.
        name: of the thread.
    """

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...] = (), *, name: str) -> None:
        super().__init__(target=target, args=args, name=name, daemon=True)
        self._started: Any = Flag()


class Job(Future[_T], Generic[_T]):
    """A future that may be waited for where Ctrl-C strikes."""

    def __init__(self) -> None:
        super().__init__()
        self._condition: Any = Room()


class DaemonPool:
    """Runs functions in a fixed number of daemon threads, in the order in which they were submitted.

    Each runs in the context of whoever submitted it: under the limits of its run, for one.

    Args:
        count: how many threads; they start with the first function.
        name: of the threads.
    """

    def __init__(self, count: int, name: str) -> None:
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None] = (
            queue.SimpleQueue()
        )
        self._closed = False
        self._started = False
        self._room = Room()
        self._threads = [Thread(_serve, (self._work, self._room), name=f"{name}-{i}") for i in range(count)]

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Run `fn(*args)` in a thread.

        Raises:
            RuntimeError: the pool is closed.
        """
        if self._closed:
            raise RuntimeError("the pool is closed")
        if not self._started:
            self._started = True
            for thread in self._threads:
                thread.start()
        future: Job[Any] = Job()
        self._work.put((future, copy_context().run, (fn, *args)))
        return future

    def wait(self, ready: Callable[[], bool]) -> bool:
        """Wait until something is so, which is looked at whenever a function was run; False once the pool is closed."""
        with self._room:
            while not (ready() or self._closed):
                self._room.wait()
        return not self._closed

    def close(self, wait: bool = True) -> None:
        """Cancel what has not begun, and wait for what has."""
        self._closed = True
        with self._room:
            self._room.notify_all()
        while True:
            try:
                item = self._work.get_nowait()
            except queue.Empty:
                break
            if item is not None:
                item[0].cancel()
        for _ in self._threads:
            self._work.put(None)
        if wait:
            join(self._threads)


def _serve(work: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None], room: Room) -> None:
    """What a thread of the pool runs. It knows the queue and the room, never the pool."""
    while (item := work.get()) is not None:
        future, fn, args = item
        if not future.set_running_or_notify_cancel():
            continue
        try:
            result = fn(*args)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)
        with room:
            room.notify_all()
        del item, future, fn, args  # nothing is kept alive while waiting
