"""threads: daemon threads that are waited for, but never without limit.

`concurrent.futures.ThreadPoolExecutor` is joined at exit without limit, so a function that never returns would keep the
interpreter alive for ever. A user's function may be such a one.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any

from .log import logger

__all__ = ["PATIENCE", "DaemonPool", "join"]

PATIENCE = 2.0
"""Seconds to wait for a thread at the end. Only a user's function, or the system, can take that long."""


def join(threads: Sequence[threading.Thread]) -> None:
    """Wait for threads that were told to stop, `PATIENCE` seconds at most for each; say so if one does not end."""
    for thread in threads:
        if thread.ident is None or thread is threading.current_thread():
            continue
        thread.join(PATIENCE)
        if thread.is_alive():
            logger.warning("%s still runs a function of the chain, or a read, after %.0f s", thread.name, PATIENCE)


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
        self._threads = [
            threading.Thread(target=_serve, args=(self._work,), name=f"{name}-{i}", daemon=True) for i in range(count)
        ]

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
        future: Future[Any] = Future()
        self._work.put((future, copy_context().run, (fn, *args)))
        return future

    def close(self, wait: bool = True) -> None:
        """Cancel what has not begun, and wait for what has."""
        self._closed = True
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


def _serve(work: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None]) -> None:
    """What a thread of the pool runs. It knows the queue, never the pool."""
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
        del item, future, fn, args  # nothing is kept alive while waiting
