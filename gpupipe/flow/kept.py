"""kept: where worker processes wait for the next pass, and when they end. Knows no multiprocessing.

A worker is a new interpreter that imports the script: seconds, where that imports PyTorch. So a step of a chain has a
home for its workers, which lives as long as any dataset or iterator that has the step; a run has one, too.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Protocol

from ..extract.storage.forking import keep_for_ever

__all__ = ["HOMES", "Home"]


class Ends(Protocol):
    """What waits."""

    def close(self, wait: bool = True) -> None:
        """End it. Safe to call twice."""
        ...


class Home:
    """Where workers wait to be used again, by what tells them from others. Safe to use from several threads.

    Those that wait end with it: nobody who may need them holds it any more.
    """

    __slots__ = ("__weakref__", "_ending", "_idle", "_lock", "_open")

    def __init__(self) -> None:
        self._open = True
        self._renew()
        HOMES.add(self)

    def _renew(self) -> None:
        """Have no workers. Those to come outlive this object until they are ended, in whatever order a cycle goes."""
        self._idle: dict[Any, list[Ends]] = {}
        self._lock = threading.RLock()  # reentrant: the garbage collector may close it in a thread that is just here
        self._ending = weakref.finalize(self, _end, self._idle, self._lock)

    def __reduce__(self) -> tuple[type[Home], tuple[()]]:
        return Home, ()  # the workers of a copy are its own

    def take(self, key: Any) -> Any:
        """Workers of this key; None if there are none, and then those of other keys end: options have changed."""
        with self._lock:
            waiting = self._idle.get(key)
            if waiting:
                return waiting.pop()
        self.empty()
        return None

    def put(self, key: Any, workers: Ends) -> None:
        """Keep workers for the next who asks; where nobody can ask any more they end. Safe to call twice."""
        with self._lock:
            waiting = self._idle.setdefault(key, [])
            if workers not in waiting:
                waiting.append(workers)
            if self._open:
                return
        self.empty()
        workers.close()

    def empty(self, wait: bool = True) -> None:
        """End all that wait."""
        _end(self._idle, self._lock, wait)

    def close(self, wait: bool = True) -> None:
        """End all that wait, and those that come later."""
        self._open = False
        self.empty(wait)

    def abandon(self) -> None:
        """In a forked child: they are the parent's."""
        keep_for_ever(self._idle, self._lock)
        self._ending.detach()
        self._renew()


def _end(idle: dict[Any, list[Ends]], lock: threading.RLock, wait: bool = True) -> None:
    """End the workers that wait in a home."""
    with lock:
        waiting = [workers for some in idle.values() for workers in some]
        idle.clear()
    for workers in waiting:
        workers.close(wait)


HOMES: weakref.WeakSet[Home] = weakref.WeakSet()


def _abandon() -> None:
    for home in list(HOMES):
        home.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon)
