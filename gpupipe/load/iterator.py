"""iterator: what a `for` loop over a Dataset holds."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..errors import ClosedError, PlanError, PlanTypeError
from ..extract.decode import MOST_PIXELS
from ..flow.base import RUNNING, Context, Hole, Run
from ..flow.elements import close
from ..flow.host import own_bytes
from ..optimize.lower import lower
from ..options import Settings
from ..plan.node import Node, walk
from ..spec import Compound, DatasetSpec, Structure, map_structure

if TYPE_CHECKING:
    from ..optimize.memory import MemoryReport

__all__ = ["DatasetIterator", "HostIterator", "OwnedIterator"]

_RUNS: weakref.WeakSet[Run] = weakref.WeakSet()
_FORKED: list[Any] = []


class DatasetIterator(Iterator[Any]):
    """Iterates over a chain; a context manager. Nothing starts before the first `next`.

    Leaving a loop, an exception, `close()` or garbage collection stop its threads. It survives an error: `next`
    raises once, and the call after it gives the next element.

    Attributes:
        epoch: the number that its random draws depend on; None before the first `next` unless it was given.
    """

    def __init__(self, plan: Node, settings: Settings, epochs: Any) -> None:
        self._plan = plan
        self._settings = settings
        self._epochs = iter(epochs)
        self._run: Run | None = None
        self._items: Any = None
        self._structure: Structure | None = None
        self._last: Any = None
        self._batched = False
        self._early = 0
        self._ready: list[Any] = []
        self._done = False
        self._busy = False
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self.epoch: int | None = None

    def __iter__(self) -> DatasetIterator:
        return self

    def __enter__(self) -> DatasetIterator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __next__(self) -> Any:
        if os.getpid() != self._pid:
            raise ClosedError("this iterator was created before a fork; make a new one in this process")
        if self._done:
            raise StopIteration
        token = MOST_PIXELS.set(self._settings.max_pixels)
        try:
            if self._run is not None and RUNNING.get() is self._run:
                raise _inside()
            with self._lock:  # several threads may take from one iterator; each gets other elements
                if self._busy:
                    raise _inside()
                self._busy = True
                try:
                    return self._next()
                finally:
                    self._busy = False
        except StopIteration:
            self.close()
            raise
        except (KeyboardInterrupt, SystemExit):
            self.close()
            raise
        except RecursionError as error:  # each step asks the one below: Python cannot nest so many calls
            self.close()
            raise PlanError(
                f"the chain is too deep to run: {len(walk(self._plan))} steps, and Python nests "
                f"{sys.getrecursionlimit()} calls; let one function do what several do"
            ) from error
        finally:
            MOST_PIXELS.reset(token)

    def _next(self) -> Any:
        while True:
            if self._ready:
                return self._ready.pop()
            items = self._items if self._items is not None else self._open()
            element = next(items, None)
            if element is None:
                close(self._items)
                self._items, self._last, self._early = None, None, 0
                continue
            value = element[0]
            if type(value) is not Hole:
                assert self._structure is not None
                value = own_bytes(value)
                if self._settings.on_error == "replace":  # a copy, as the user may change what was delivered
                    self._last = value if self._batched else own_copy(value)
                if self._early:
                    self._ready = [self._structure.unflatten(own_copy(value)) for _ in range(self._early)]
                    self._early = 0
                return self._structure.unflatten(value)
            if value.raised or self._settings.on_error == "raise":
                raise value.error.again()
            assert self._run is not None
            self._run.leave_out(value)
            if self._settings.on_error == "replace":
                if self._last is not None and self._structure is not None:
                    return self._structure.unflatten(own_copy(self._last))
                self._early += 1

    @property
    def left_out(self) -> int:
        """How many bad elements were left out or replaced so far, by `on_error` or `ignore_errors`."""
        return 0 if self._run is None else self._run.left_out

    def memory_report(self) -> MemoryReport:
        """What the buffers of the chain hold at this moment, and may hold, by step. Any thread may ask.

        Batches inside an executor, and one that the user holds, are in no buffer.
        """
        from ..optimize.memory import memory_report

        return memory_report(self._plan, self._settings, self._run or Run(self._settings))

    def _open(self) -> Any:
        """Start the next epoch and give its elements; StopIteration where there is none."""
        self.epoch = next(self._epochs)
        if self._run is None:
            self._run = Run(self._settings)
            _RUNS.add(self._run)
            weakref.finalize(self, _collected, self._run)
        at = Context(self._run, self.epoch)
        lowered = lower(self._plan, self._settings, at)
        self._structure = lowered.element.structure or Structure()
        self._batched = lowered.element.batched
        if self._done:  # closed by another thread, while the first element was looked at
            raise StopIteration
        self._items = lowered.flow.open(at)
        return self._items

    def close(self) -> None:
        """Stop every thread of this iterator and wait for them. Safe to call twice."""
        self._done = True
        if os.getpid() != self._pid:
            return
        if self._run is not None:
            self._run.stopped.set()  # first of all: whoever forms a long batch looks at it
        if self._items is not None:
            close(self._items)
            self._items = None
        if self._run is not None:
            self._run.close()


def _inside() -> PlanError:
    return PlanError(
        "next() needs to be called from outside, got a call by a function of the chain that the iterator runs; "
        "use another iterator there, or window, scan or zip"
    )


def own_copy(value: Any) -> tuple[Any, ...]:
    """Leaves that share no memory with those delivered before."""
    return tuple([leaf if isinstance(leaf, (bytes, Compound)) else leaf.copy() for leaf in value])


class HostIterator(DatasetIterator):
    """The same, with every array on the host. Nested datasets stay what they are."""

    def __next__(self) -> Any:
        return map_structure(on_host, super().__next__())


class OwnedIterator(DatasetIterator):
    """The iterator of `as_numpy_iterator`: arrays on the host, and nothing that is no array."""

    def __next__(self) -> Any:
        return map_structure(array_on_host, super().__next__())


def array_on_host(leaf: Any) -> Any:
    """The same, where a nested dataset is an error."""
    if isinstance(leaf, Compound) and isinstance(spec := leaf.leaf_spec(), DatasetSpec):
        raise PlanTypeError(f"as_numpy_iterator needs arrays, numbers or bytes, got a {spec}")
    return on_host(leaf)


def on_host(leaf: Any) -> Any:
    """A delivered leaf in host memory."""
    if isinstance(leaf, Compound):
        return leaf
    get = getattr(leaf, "get", None)  # a CuPy array
    if get is not None:
        return get()
    if hasattr(leaf, "__cuda_array_interface__"):
        from ..transform.array import to_host

        return to_host(leaf)
    return leaf


def _collected(run: Run) -> None:
    """End the run of an iterator that nobody holds any more.

    The collector may run in any thread. In one of a pipeline's it only tells the others to stop: it may hold what
    they wait for.
    """
    run.close(wait=not threading.current_thread().name.startswith("gpupipe-"))


def _close_all() -> None:
    """At exit: stop what is still running, so that the interpreter can end."""
    for run in list(_RUNS):
        run.close()


def _after_fork() -> None:
    """In a forked child the parent's threads do not exist: keep the runs for ever, so that nothing waits for them."""
    _FORKED.extend(_RUNS)
    for run in list(_RUNS):
        run.abandon()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
