"""threads: daemon threads that are joined with a timeout, and locks that survive Ctrl-C.

`concurrent.futures.ThreadPoolExecutor` is joined at exit without a timeout, so a user's function that never returns
would keep the interpreter alive forever.

Ctrl-C may interrupt the user's thread anywhere. A `threading.Condition` that it is just leaving then stays locked, and
other threads wait for it forever: its `__enter__` and `__exit__` are Python code, in which a signal handler may raise.
So state shared with the user's thread is guarded by locks implemented in C, and threads wait in a `Room`.
"""

from __future__ import annotations

import _thread
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import Context, copy_context
from time import monotonic, perf_counter, thread_time
from typing import Any, Generic, TypeVar

from .classes import dataclass
from .log import logger
from .timing import TRACKER

__all__ = ["PATIENCE", "Busy", "DaemonPool", "Flag", "Job", "Room", "Thread", "join", "snapshot"]

_T = TypeVar("_T")

PATIENCE = 2.0
"""Seconds to wait for threads at the end. Only a user's function, or a read, can take longer."""


def snapshot(items: deque[_T]) -> list[_T]:
    """What a queue holds, which another thread may change meanwhile.

    With the GIL `list` does that at once; without it, it raises RuntimeError where the queue changes, and is repeated.

    Raises:
        RuntimeError: the queue changed each of very many times.
    """
    for _ in range(10_000):
        try:
            return list(items)
        except RuntimeError:
            continue
    return list(items)


def join(threads: Sequence[Thread]) -> None:
    """Wait for threads that were told to stop, at most `PATIENCE` seconds for all; log those that do not end."""
    until = monotonic() + PATIENCE
    for thread in threads:
        if thread.ident is None or thread is threading.current_thread():
            continue
        thread._started.wait(PATIENCE)  # a thread has an ident shortly before it can be joined
        thread.join(max(0.0, until - monotonic()))
        if thread.is_alive():
            logger.warning("%s still runs a function of the chain, or a read, after %.0f s", thread.name, PATIENCE)


# CPython allows subclasses of its lock, and its own Condition uses `_acquire_restore`, too.
class Room(_thread.RLock):  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    """A lock with `wait` and `notify_all`, like `threading.Condition`.

    It stays consistent wherever a signal handler raises.
    """

    def __init__(self) -> None:
        self._sleepers: list[_thread.LockType] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock, which is held once, until notified; return False if the timeout comes first."""
        sleeper = _thread.allocate_lock()
        sleeper.acquire()
        self._sleepers.append(sleeper)
        mine = 1, _thread.get_ident()
        try:
            self.release()
            return sleeper.acquire(timeout=-1 if timeout is None else timeout)
        finally:
            # Unlike `acquire` it is never interrupted.
            self._acquire_restore(mine)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]

    def notify_all(self) -> None:
        """Wake all waiting threads; the lock must be held."""
        sleepers, self._sleepers = self._sleepers, []
        for sleeper in sleepers:
            sleeper.release()


class Flag(threading.Event):
    """An event that is set once and for all, and stays consistent if Ctrl-C interrupts `set` or `wait`.

    Attributes:
        on: whether it is set, or is being set; read for each element, where a call would cost 30 ns.
    """

    def __init__(self) -> None:
        super().__init__()
        self._cond: Any = Room()
        self.on = False

    def set(self) -> None:
        self.on = True
        super().set()


class Thread(threading.Thread):
    """A daemon thread whose start Ctrl-C may interrupt: a plain one could then wait forever for its starter.

    Args:
        target: the function to run.
        args: its arguments.
        name: of the thread.
    """

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...] = (), *, name: str) -> None:
        super().__init__(target=target, args=args, name=name, daemon=True)
        self._started: Any = Flag()
        self._tracker = TRACKER.get()
        self._joins = _thread.allocate_lock()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end, one caller after the other: before Python 3.13 it fails where two see it at once."""
        until = None if timeout is None else monotonic() + timeout
        if self._joins.acquire(timeout=-1 if timeout is None else timeout):
            try:
                super().join(None if until is None else max(0.0, until - monotonic()))
            finally:
                self._joins.release()

    def is_alive(self) -> bool:
        """Whether it runs: yes where another thread waits for its end, and goes on waiting."""
        if not self._joins.acquire(timeout=0.1):  # who has seen the end, or only looks, is done at once
            return True
        try:
            return super().is_alive()
        finally:
            self._joins.release()

    def run(self) -> None:
        # Python 3.14 can start a thread with the context variables of its starter, and does so without the GIL.
        Context().run(self._in_context)

    def _in_context(self) -> None:
        if self._tracker is not None:
            TRACKER.set(self._tracker)
        super().run()


class Job(Future[_T], Generic[_T]):
    """A future that stays consistent if Ctrl-C interrupts waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self._condition: Any = Room()


@dataclass(slots=True)
class Busy:
    """The work of one thread or process so far; times in seconds.

    Attributes:
        jobs: functions that have returned.
        seconds: inside them.
        cpu: CPU time of the thread, read after long jobs and after every eighth: a look at that clock costs 0.6 us.
    """

    jobs: int = 0
    seconds: float = 0.0
    cpu: float = 0.0


class _Leaving:
    """Threads of a pool that are to end: as many tokens wait in its queue, of which some may be void again."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tokens = 0
        self.void = 0
        self.free: deque[Busy] = deque()  # of the threads that have ended

    def taken(self, busy: Busy) -> bool:
        """Take a token out of the queue; return whether the thread is to end."""
        with self.lock:
            self.tokens -= 1
            if self.void:
                self.void -= 1
                return False
            self.free.append(busy)
            return True


_LEAVE: Any = ()
"""Tells one thread of a pool to end."""


class DaemonPool:
    """Runs functions in a number of daemon threads, in the order of submission.

    Each runs in the submitter's context (`contextvars`), for instance under the limits of its run.

    Args:
        count: how many threads; they start with the first function. `resize` changes it.
        name: of the threads.
        busy: one for each thread, to count in; by default new ones.

    Attributes:
        busy: the work of each thread so far, of those that have ended, too.
    """

    def __init__(self, count: int, name: str, busy: list[Busy] | None = None) -> None:
        self.busy = [Busy() for _ in range(count)] if busy is None else busy
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None] = (
            queue.SimpleQueue()
        )
        self._closed = False
        self._started = False
        self._room = Room()
        self._name = name
        self._count = count
        self._leaving = _Leaving()
        self._threads = [self._thread(i, one) for i, one in enumerate(self.busy[:count])]

    def _thread(self, number: int, busy: Busy) -> Thread:
        return Thread(_serve, (self._work, self._room, busy, self._leaving), name=f"{self._name}-{number}")

    def resize(self, count: int) -> None:
        """Change the number of threads, in the thread that submits. Those that are too many end after their function.

        There are never more threads than the largest number so far.
        """
        more, leaving = count - self._count, self._leaving
        self._count = count
        if self._closed:
            return
        if more < 0:
            with leaving.lock:
                leaving.tokens -= more
            for _ in range(-more):
                self._work.put(_LEAVE)
            return
        with leaving.lock:
            stay = min(more, leaving.tokens - leaving.void)
            leaving.void += stay
        self._threads = [thread for thread in self._threads if thread.ident is None or thread.is_alive()]
        for _ in range(more - stay):
            if not leaving.free:
                self.busy.append(Busy())
                leaving.free.append(self.busy[-1])
            thread = self._thread(len(self._threads), leaving.free.popleft())
            self._threads.append(thread)
            if self._started:
                thread.start()
                if self._closed:  # just now, by another thread, which knows nothing of this one
                    self._work.put(None)

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Run `fn(*args)` in a thread.

        Raises:
            RuntimeError: the pool is closed.
        """
        if self._closed:
            raise RuntimeError("the pool is closed")
        if not self._started:
            self._start()
        future: Job[Any] = Job()
        if (tracker := TRACKER.get()) is not None:
            fn = tracker.carried(fn)
        self._work.put((future, copy_context().run, (fn, *args)))
        if self._closed and future.cancel():  # just now, by another thread, which may not have seen this function
            raise RuntimeError("the pool is closed")
        return future

    def _start(self) -> None:
        """Start the threads, in the first of the threads that submit."""
        with self._room:
            if not self._started:
                for thread in self._threads:
                    if thread.ident is None:  # else Ctrl-C ended an earlier try behind it
                        thread.start()
                self._started = True

    def wait(self, ready: Callable[[], bool]) -> bool:
        """Wait until `ready()` holds, checked after each function; return False once the pool is closed."""
        with self._room:
            while not (ready() or self._closed):
                self._room.wait()
        return not self._closed

    def close(self, wait: bool = True) -> None:
        """Cancel functions that have not started, and wait for the others."""
        self._closed = True
        with self._room:
            self._room.notify_all()
        while True:
            try:
                item = self._work.get_nowait()
            except queue.Empty:
                break
            if item:
                item[0].cancel()
        for _ in self._threads:
            self._work.put(None)
        if wait:
            join(self._threads)


def _serve(
    work: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None],
    room: Room,
    busy: Busy,
    leaving: _Leaving,
) -> None:
    """Run functions in a thread of the pool. It references the queue and the room, never the pool."""
    cpu = 0.0
    while (item := work.get()) is not None:
        if item is _LEAVE:
            if leaving.taken(busy):
                return
            continue
        future, fn, args = item
        if not future.set_running_or_notify_cancel():
            continue
        started = perf_counter()
        try:
            result = fn(*args)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)
            del result  # the next job may be far off
        took = perf_counter() - started
        busy.seconds += took
        if took > 1e-4 or not busy.jobs & 7:
            cpu, before = thread_time(), cpu
            busy.cpu += cpu - before
        busy.jobs += 1
        with room:
            room.notify_all()
        del item, future, fn, args  # keep nothing alive while waiting
