"""pool: idle pipelines, kept for the next iterator, and the handling of pipelines in a forked child.

Building a pipeline costs 50 ms on the CPU and leaks a little, so a drained one waits here for the next executor that
runs the same program. A forked child inherits pipelines whose threads do not exist there: running or destroying one
hangs forever. So the child keeps a reference to each forever, and their destructors never run.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any

from ..extract.storage.forking import keep_forever

__all__ = ["EXIT_HOOKS", "PipelinePool"]

EXIT_HOOKS: list[Callable[[], None]] = []
"""Called when the interpreter exits, before DALI shuts down every pipeline, to release those still in use."""

LIMIT = 8
"""Most idle pipelines to keep: the stages of a few chains. The oldest is dropped first."""


class PipelinePool:
    """Idle pipelines by key, at most one per key. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[Hashable, tuple[Any, object]] = {}
        self._alive: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lent: weakref.WeakSet[Any] = weakref.WeakSet()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._abandon)

    def __len__(self) -> int:
        return len(self._idle)

    def watch(self, pipeline: Any) -> None:
        """Remember a pipeline that was just built, so that a forked child never destroys it."""
        with self._lock:
            self._alive.add(pipeline)

    def lend(self, tensor: Any) -> Any:
        """Remember DALI memory that is handed out, and return it.

        A forked child never frees it: a thread of the parent may have held the lock of DALI's allocator.
        """
        self._lent.add(tensor)
        return tensor

    def take(self, key: Hashable) -> Any | None:
        """Remove and return an idle pipeline with this key; None if there is none."""
        with self._lock:
            found = self._idle.pop(key, None)
        return None if found is None else found[0]

    def put(self, key: Hashable, pipeline: Any, owner: object = None) -> None:
        """Keep a drained pipeline.

        Args:
            key: identifies the executors that can use it.
            pipeline: with nothing in flight.
            owner: an object to keep alive as long as the key is in use (a key may hold the id of a function).
        """
        dropped: list[Any] = []  # destroyed outside the lock, as a destructor joins threads
        with self._lock:
            if key in self._idle:
                dropped.append(pipeline)
            else:
                self._idle[key] = (pipeline, owner)
                if len(self._idle) > LIMIT:
                    dropped.append(self._idle.pop(next(iter(self._idle))))

    def clear(self) -> None:
        """Destroy every idle pipeline."""
        with self._lock:
            dropped, self._idle = self._idle, {}
        dropped.clear()

    def _abandon(self) -> None:
        """In a forked child: forget everything and destroy nothing, not even at exit."""
        self._lock = threading.Lock()  # another thread of the parent may have held the old one
        for pipeline in list(self._alive):
            # DALI's Pipeline shuts its backend down when it is destroyed and at exit, unless it has none.
            inner = getattr(pipeline, "_pipe", None)
            keep_forever(pipeline if inner is None else inner)
            pipeline._pipe = None
        keep_forever(*self._lent)
        self._idle = {}
        self._alive = weakref.WeakSet()
        self._lent = weakref.WeakSet()
