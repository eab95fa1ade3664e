"""kept: where worker processes wait for the next iterator, and when they end. Knows no multiprocessing.

A worker is a new interpreter that imports the script: seconds, where that imports PyTorch. So a step of a chain has a
home for its workers, which lives as long as the step, that is, as any dataset or iterator that has it.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Protocol

from ..extract.storage.forking import keep_for_ever

__all__ = ["HOMES", "Home", "Kept"]


class Ends(Protocol):
    """What waits."""

    def close(self) -> None:
        """End it. Safe to call twice."""
        ...


class Home:
    """Where workers wait to be used again, by what tells them from others. Safe to use from several threads."""

    __slots__ = ("__weakref__", "_idle", "_lock", "_open")

    def __init__(self) -> None:
        self._idle: dict[Any, list[Ends]] = {}
        self._open = True
        self._lock = threading.RLock()  # reentrant: the garbage collector may close it in a thread that is just here

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

    def empty(self) -> None:
        """End all that wait."""
        with self._lock:
            waiting = [workers for some in self._idle.values() for workers in some]
            self._idle.clear()
        for workers in waiting:
            workers.close()

    def close(self) -> None:
        """End all that wait, and those that come later."""
        self._open = False
        self.empty()

    def abandon(self) -> None:
        """In a forked child: they are the parent's."""
        keep_for_ever(self._idle, self._lock)
        self._idle, self._lock = {}, threading.RLock()


HOMES: weakref.WeakSet[Home] = weakref.WeakSet()
"""Those of steps."""


class Kept:
    """What a step of a chain holds: the home of its workers is closed when nobody holds the step any more.

    Attributes:
        home: where they wait.
    """

    def __init__(self) -> None:
        self.home = Home()
        HOMES.add(self.home)
        weakref.finalize(self, self.home.close)

    def __reduce__(self) -> tuple[type[Kept], tuple[()]]:
        return Kept, ()  # the workers of a copy are its own


def _abandon() -> None:
    for home in list(HOMES):
        home.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon)
