"""shutdown: how runs begin, and what becomes of those that nobody ends: iterators that are collected, exit, a fork."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Protocol

from ..extract.storage.forking import keep_forever
from ..flow.run import Run
from ..transform.pool import EXIT_HOOKS

if TYPE_CHECKING:
    from ..options import Settings
    from .progress import Progress

__all__ = ["RUNS", "begun", "continued", "watch"]

RUNS: weakref.WeakSet[Run] = weakref.WeakSet()
"""Those that were begun."""


class Abandoned(Protocol):
    """An iterator that nobody ends."""

    def release(self) -> None:
        """Close what it takes from, at exit."""
        ...

    def abandon(self) -> None:
        """Forget the threads of the parent, in a forked child."""
        ...


_ITERATORS: weakref.WeakSet[Abandoned] = weakref.WeakSet()


def begun(settings: Settings, progress: Progress) -> Run:
    """The first run of an iterator.

    Args:
        settings: of its chain.
        progress: what a state says of the bad elements before.
    """
    run = Run(settings)
    run.bad.start()
    run.bad.left_out, run.bad.before = progress.left_out, progress.noted
    return run


def continued(run: Run, epoch: int) -> Run:
    """The one behind a run that was stopped in the middle of an epoch: with its bad elements, each noted once."""
    new = Run(run.settings, on_gpu=run.on_gpu)
    new.bad, new.limits.outer = run.bad, run.limits.outer
    new.bad.again(epoch)
    return new


def watch(iterator: Abandoned, run: Run, before: weakref.finalize[Any, Any] | None) -> weakref.finalize[Any, Any]:
    """See to it that a run ends, at the latest with its iterator and with the process.

    Args:
        iterator: whose run it is.
        run: of the iterator.
        before: the answer for its run before, which has ended.
    """
    if before is not None:
        before.detach()
    RUNS.add(run)
    _ITERATORS.add(iterator)
    return weakref.finalize(iterator, _collected, run)


def _collected(run: Run) -> None:
    """End the run of an iterator that nobody holds any more.

    The collector may run in any thread. In one of a pipeline's it only tells the others to stop: it may hold what
    they wait for.
    """
    run.close(wait=not threading.current_thread().name.startswith("gpupipe-"))


def _close_all() -> None:
    """At exit: stop what is still running, so that the interpreter can end.

    What an iterator takes from is closed too: a generator that is destroyed later finds the names of its module gone.
    """
    for run in list(RUNS):
        run.close()
    for iterator in list(_ITERATORS):
        iterator.release()


def _after_fork() -> None:
    """In a forked child the parent's threads do not exist: keep for ever what would wait for them when destroyed."""
    for iterator in list(_ITERATORS):
        iterator.abandon()
    for run in list(RUNS):
        keep_forever(run)
        run.abandon()


atexit.register(_close_all)
EXIT_HOOKS.append(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
