"""shutdown: how runs start, and how they end without `close`: by garbage collection, at exit and in a forked child."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import GpupipeError
from ..extract.storage.at_once import versions
from ..extract.storage.files import changed
from ..extract.storage.forking import keep_forever
from ..extract.storage.waiting import Limits
from ..flow.run import Run
from ..log import logger
from ..transform.pool import EXIT_HOOKS

if TYPE_CHECKING:
    from ..options import Settings
    from .progress import Progress

__all__ = ["RUNS", "check_files", "close_all", "first_run", "next_run", "watch"]

RUNS: weakref.WeakSet[Run] = weakref.WeakSet()
"""The runs that were started."""


class Watched(Protocol):
    """An iterator that may still be open at exit or in a fork."""

    def release(self) -> None:
        """Close the flow, at exit."""
        ...

    def abandon(self) -> None:
        """Leave the threads to the parent, in a forked child."""
        ...


_ITERATORS: weakref.WeakSet[Watched] = weakref.WeakSet()


def first_run(settings: Settings, progress: Progress) -> Run:
    """Make the first run of an iterator.

    Args:
        settings: settings of the chain.
        progress: the counts of bad elements in a loaded state.
    """
    run = Run(settings)
    run.bad.start()
    if progress.listed and settings.bad_records is None:
        logger.warning(
            "load_state_dict: Options.bad_records was given when the state was taken, and is not now: where a batch, a "
            "window or a filter counted with its records, rows may be lost or come twice until the epoch ends; give it "
            "again, however it has changed, or start the epoch again"
        )
    run.bad.left_out, run.bad.before = progress.left_out, progress.noted
    run.bad.found.load(progress.caches)
    run.bad.found.start(*(progress.bad or ([], True, [])))
    return run


def next_run(run: Run, epoch: int, number: int) -> Run:
    """Make a run that follows one which was stopped within an epoch.

    It keeps all counts, and the bad elements, each noted once; from a number on they are bad again.
    """
    new = Run(run.settings, on_gpu=run.on_gpu, counters=run.counters)
    new.tuner = run.tuner
    new.bad, new.limits.outer, new.limits.reads = run.bad, run.limits.outer, run.limits.reads
    new.limits.found, new.limits.opened, new.limits.changed = new.bad.found, run.limits.opened, run.limits.changed
    new.limits.again = True
    new.bad.again(epoch, number)
    return new


def check_files(limits: Limits, inside: bool) -> None:
    """Before an epoch goes on after an interrupt, check that the files that it has opened are the same.

    Args:
        limits: of the run.
        inside: whether the epoch has given an element. Before that it starts again, with the files as they are.

    Raises:
        DataError: one has changed, as when it changes between two reads, or it cannot be looked at.
    """
    if limits.again and not inside:
        limits.opened.clear()
    elif limits.again:
        opened = list(limits.opened.items())
        for (path, (_, tag)), now in zip(opened, versions([path for path, _ in opened]), strict=True):
            if isinstance(now, GpupipeError):
                raise now
            if now[1] != tag:
                raise changed(path, tag, now[1])
        limits.again = False


def watch(iterator: Watched, run: Run, before: weakref.finalize[Any, Any] | None) -> weakref.finalize[Any, Any]:
    """Make a run end with its iterator, or at exit.

    Args:
        iterator: the iterator.
        run: its run.
        before: the finalizer of its previous run, which has ended.
    """
    if before is not None:
        before.detach()
    RUNS.add(run)
    _ITERATORS.add(iterator)
    return weakref.finalize(iterator, _collected, run)


def _collected(run: Run) -> None:
    """End the run of an iterator that was garbage-collected.

    The collector may run in any thread. A thread of a pipeline only tells the others to stop, as it may hold locks that
    they wait for.
    """
    run.close(wait=not threading.current_thread().name.startswith("gpupipe-"))


def close_all() -> None:
    """At exit, stop all runs, so that the interpreter can end.

    Flows are closed, too: a generator that is destroyed later finds the globals of its module gone.
    """
    for run in list(RUNS):
        run.close()
    for iterator in list(_ITERATORS):
        iterator.release()


def _after_fork() -> None:
    """In a forked child, keep forever the objects whose destruction would wait for the parent's threads."""
    for iterator in list(_ITERATORS):
        iterator.abandon()
    for run in list(RUNS):
        keep_forever(run)
        run.abandon()


atexit.register(close_all)
EXIT_HOOKS.append(close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
