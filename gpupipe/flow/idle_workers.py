"""idle_workers: where idle worker processes wait for the next pass, and when they end. Imports no multiprocessing.

A worker is a new interpreter that imports the script, which takes seconds if that imports PyTorch. So a step of a chain
has a home for its workers, which lives as long as any dataset or iterator with that step; a run has one, too.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Protocol

from ..extract.storage.forking import keep_forever

__all__ = ["IdleWorkers", "all_idle"]


class Ends(Protocol):
    """Workers that can be ended."""

    def close(self, wait: bool = True) -> None:
        """End the workers. Safe to call twice."""
        ...


class IdleWorkers:
    """Idle workers by key. Safe to use from several threads.

    They end when the home is collected: no dataset or iterator can need them any more.
    """

    __slots__ = ("__weakref__", "_ending", "_idle", "_lock", "_open")

    def __init__(self) -> None:
        self._open = True
        self._renew()
        _HOMES[id(self)] = self

    def _renew(self) -> None:
        """Start without workers. The finalizer owns later ones, so they end in whatever order a cycle is collected."""
        self._idle: dict[Any, list[Ends]] = {}
        self._lock = threading.RLock()  # reentrant: the garbage collector may close the home in a thread that holds it
        self._ending = weakref.finalize(self, _end, self._idle, self._lock)

    def __reduce__(self) -> tuple[type[IdleWorkers], tuple[()]]:
        return IdleWorkers, ()  # a copy starts without workers

    def take(self, key: Any) -> Any:
        """Take workers of this key. If there are none, end those of other keys (options have changed), return None."""
        with self._lock:
            waiting = self._idle.get(key)
            if waiting:
                return waiting.pop()
        self.empty()
        return None

    def put(self, key: Any, workers: Ends) -> None:
        """Keep workers for the next `take`, or end them if the home is closed. Safe to call twice."""
        with self._lock:
            waiting = self._idle.setdefault(key, [])
            if workers not in waiting:
                waiting.append(workers)
            if self._open:
                return
        self.empty()
        workers.close()

    def empty(self, wait: bool = True) -> None:
        _end(self._idle, self._lock, wait)

    def close(self, wait: bool = True) -> None:
        """End all idle workers, and those that come later."""
        self._open = False
        self.empty(wait)

    def abandon(self) -> None:
        """Forget the workers, in a forked child: they belong to the parent."""
        keep_forever(self._idle, self._lock)
        self._ending.detach()
        self._renew()


def _end(idle: dict[Any, list[Ends]], lock: threading.RLock, wait: bool = True) -> None:
    with lock:
        waiting = [workers for some in idle.values() for workers in some]
        idle.clear()
    for workers in waiting:
        workers.close(wait)


_HOMES: weakref.WeakValueDictionary[int, IdleWorkers] = weakref.WeakValueDictionary()


def all_idle() -> list[IdleWorkers]:
    """Every object that may keep workers. Other threads may make iterators meanwhile, each of which has one."""
    found = (home() for home in _HOMES.valuerefs())  # a list made at once: a dictionary may not grow during a loop
    return [home for home in found if home is not None]


def _abandon() -> None:
    for home in all_idle():
        home.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon)
