"""processes: worker processes as the operating system sees them: memory, signals and how they end."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import field
from multiprocessing import process as started
from multiprocessing import shared_memory
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from typing import Any

from ...classes import dataclass

__all__ = [
    "PROCESSES",
    "SLOTS",
    "Worker",
    "join",
    "no_interrupts",
    "release",
    "reserve",
    "segment_of",
    "signal_name",
    "unlink",
]

SLOTS = 2
"""Elements that a worker may hold: one in work and one that waits, so that the worker need not wait for the parent."""


@dataclass(eq=False, slots=True)
class Worker:
    """One process, its tasks in order with their slots, and its segments and free slots."""

    process: Any
    pipe: Connection
    ready: bool = False
    tasks: deque[tuple[Any, int]] = field(default_factory=deque)  # None for the task of an earlier pass
    segments: dict[int, SharedMemory] = field(default_factory=dict)
    free: list[int] = field(default_factory=lambda: list(range(SLOTS)))


PROCESSES: weakref.WeakSet[Any] = weakref.WeakSet()


def _disown() -> None:
    """In a forked child, forget the parent's workers: multiprocessing would terminate them when the child exits."""
    children: set[Any] = getattr(started, "_children", set())
    children.difference_update(PROCESSES)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)


def join(workers: list[Worker], seconds: float) -> None:
    """Wait until all workers have exited, so many seconds in total at most."""
    until = time.monotonic() + seconds
    for worker in workers:
        worker.process.join(max(0.0, until - time.monotonic()))


def release(worker: Worker) -> None:
    """Free the resources of a worker that has ended."""
    worker.pipe.close()
    for segment in worker.segments.values():
        unlink(segment)
    worker.segments.clear()
    if not worker.process.is_alive():
        worker.process.close()


def segment_of(size: int) -> SharedMemory:
    """Make a segment. An interrupt while it is made leaves none: its name is known before.

    Raises:
        OSError: there is no room.
    """
    name = f"gpupipe_{secrets.token_hex(8)}"
    try:
        return SharedMemory(name, create=True, size=size)
    except BaseException:
        if sys.platform != "win32":  # where it ends with its last handle
            with suppress(OSError):
                vars(shared_memory)["_posixshmem"].shm_unlink(f"/{name}")
        raise


def unlink(segment: SharedMemory) -> None:
    """Close a segment and remove it from the system."""
    segment.close()
    segment.unlink()


def reserve(segment: SharedMemory, size: int) -> None:
    """Allocate the memory now: if there is too little, a later write would kill the process (SIGBUS)."""
    handle = getattr(segment, "_fd", -1)
    if handle >= 0 and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)


def signal_name(number: int) -> str:
    """Return the name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@contextmanager
def no_interrupts() -> Iterator[None]:
    """Block Ctrl-C in processes that are started in here, until they set a handler: they inherit the mask."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # if it were started inside, that would unblock the signal again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
