"""remote_reads: the threads of a run that read remote files, and how much they may read ahead."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..extract.storage.ranges_ahead import RangeBudget
from ..threads import DaemonPool
from .counters import Counters

__all__ = ["REMOTE", "RemoteReads"]

REMOTE = "remote files"
"""What they are called in the memory report."""

READERS = 32
"""Threads that read remote files: two for each file that the default interleave has open."""

SHARE = 8
"""The ranges of remote files that are read ahead may hold this part of `Options.host_memory`."""


class RemoteReads:
    """What reads the remote files of a run; threads start with the first one.

    Args:
        host_memory: see `Options`.
        counters: count what the threads do.
        started: called once, before the threads start.

    Attributes:
        used: whether some file was remote so far.
        budget: of the bytes that are read ahead.
    """

    def __init__(self, host_memory: int, counters: Counters, started: Callable[[DaemonPool], None]) -> None:
        self.used = False
        self.budget = RangeBudget(host_memory // SHARE)
        self._counters, self._started = counters, started
        self._lock = threading.Lock()
        self._pool: DaemonPool | None = None

    @property
    def pool(self) -> DaemonPool:
        """The threads, which wait for the network most of the time."""
        with self._lock:
            if self._pool is None:
                self.used = True
                self._pool = DaemonPool(READERS, "gpupipe-remote", self._counters.step("remote readers").pool(READERS))
                self._started(self._pool)
            return self._pool
