"""iterator: what a `for` loop over a Dataset holds."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import BadRecord, ClosedError, DeviceError, GpupipeError, PlanError, StateError, TooManyBadError
from ..extract.decode import MOST_PIXELS
from ..extract.forking import keep_for_ever
from ..extract.waiting import LIMITS
from ..flow.base import BatchStream, Context, Hole, Run, Stream, stands_in
from ..flow.elements import close
from ..flow.host import own_bytes
from ..flow.state import State, snapshot
from ..optimize.lower import lower
from ..options import Settings
from ..plan.node import Element as ElementType
from ..plan.node import Node, walk
from ..plan.order import any_order
from ..spec import Structure
from .endings import watch
from .progress import Numbers, Progress, Resume, state_of
from .stand_ins import StandIns, rows_of
from .state import NOTED, Chain

if TYPE_CHECKING:
    from ..optimize.memory import MemoryReport

__all__ = ["DatasetIterator"]


class DatasetIterator(Iterator[Any]):
    """Iterates over a chain; a context manager. Nothing starts before the first `next`.

    Leaving a loop, an exception, `close()` or garbage collection stop its threads. It survives an error: `next`
    raises once, and the call after it gives the next element.

    Args:
        plan: the chain.
        settings: its options.
        epochs: the numbers of the epochs.
    """

    def __init__(self, plan: Node, settings: Settings, epochs: Numbers) -> None:
        self._plan = plan
        self._settings = settings
        self._chain = Chain(plan, settings)
        self._epochs = epochs
        self._progress = Progress()
        self._left = epochs(self._progress)  # those that were not begun
        self._loaded = False  # a state was loaded, and its epoch is not open yet
        self._state: State = None  # where the flow goes on then
        self._learned: dict[int, ElementType] = {}  # types that only first elements told
        self._run: Run | None = None
        self._items: Any = None
        self._structure = Structure()
        self._batched = False
        self._share = False  # of bad elements, which `Options.max_bad` limits: what is delivered is counted
        self._given: Stream | None = None
        self._rows = 1
        self._done = False
        self._over = False  # this epoch could not be opened: it gives nothing, the next one follows
        self._busy = False
        self._pid = os.getpid()
        self._lock = threading.RLock()

    @property
    def epoch(self) -> int | None:
        """The number that its random draws depend on; None before the first `next` unless a state was loaded."""
        return self._progress.epoch

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
        if self._run is not None and self._run.is_inside():
            raise _inside()
        token = MOST_PIXELS.set(self._settings.max_pixels)
        limits = LIMITS.set(LIMITS.get() if self._run is None else self._run.limits)
        try:
            with self._lock:  # several threads may take from one iterator; each gets other elements
                if self._busy:
                    raise _inside()
                self._busy = True
                try:
                    element = self._next()
                    self._progress.delivered += 1
                finally:
                    self._busy = False
            if self._done:  # closed by another thread meanwhile: what was cut short is not delivered
                raise StopIteration
            return element
        except StopIteration:
            self.close()
            raise
        except (KeyboardInterrupt, SystemExit, DeviceError, TooManyBadError):
            self.close()
            raise
        except RecursionError as error:  # each step asks the one below: Python cannot nest so many calls
            self.close()
            raise PlanError(
                f"the chain is too deep to run: {len(walk(self._plan))} steps, and Python nests "
                f"{sys.getrecursionlimit()} calls; let one function do what several do"
            ) from error
        except Exception:
            if self._done:  # ... and what that broke off is no error
                self.close()
                raise StopIteration from None
            raise
        finally:
            MOST_PIXELS.reset(token)
            LIMITS.reset(limits)

    def _next(self) -> Any:
        while True:
            if self._done:
                raise StopIteration
            items = self._items if self._items is not None else self._open()
            element = next(items, None)
            if element is None:
                close(self._items)
                self._items = None
                continue
            value = element[0]
            if type(value) is not Hole:
                value = own_bytes(value)
                self._given = element[1]
                if self._batched or isinstance(element[1], BatchStream):
                    self._rows = rows_of(value[0])
                if self._share:
                    assert self._run is not None
                    self._run.bad.good += max(1, self._rows)
                return self._structure.unflatten(value)
            assert self._run is not None
            if value.raised or self._settings.on_error == "raise":
                self._run.note(element, "raised")
                raise value.error.again()
            self._run.leave_out(element)

    @property
    def left_out(self) -> int:
        """How many bad elements were left out or replaced so far, by `on_error` or `ignore_errors`."""
        return self._progress.left_out if self._run is None else self._run.left_out

    @property
    def errors(self) -> tuple[BadRecord, ...]:
        """The bad elements so far, each once: left out, replaced or raised. The last 10,000, oldest first.

        Those of batches that wait to be taken are among them, so behind a restored state some are listed again. Of a
        batch that is lost as a whole (see `zip` and `ignore_errors`) the first bad row is listed; rows that are dropped
        with a short last batch are never decoded. `Options.error_manifest` keeps all.
        """
        return () if self._run is None else self._run.bad.kept

    @property
    def valid(self) -> Any:
        """Which rows of the last batch are what was read in their place: bool[B]; of a single element, a bool.

        False for those that stand in for a bad one under ``on_error="replace"``. A Python function that changes the
        number of rows takes their places from them: then all are False if one of the batch was. What comes out of a
        cache in a file, or of a saved dataset, is True.

        Raises:
            PlanError: nothing was delivered yet.
        """
        given, rows = self._given, self._rows
        if given is None:
            raise PlanError("iterator.valid speaks of the last element, and there is none yet; call next() first")
        if isinstance(given, BatchStream) and len(given.streams) == rows:
            return np.array([not stands_in(row) for row in given.streams], bool)
        if rows < 0 or not (self._batched or isinstance(given, BatchStream)):
            return not stands_in(given)
        return np.full(rows, not stands_in(given))

    def memory_report(self) -> MemoryReport:
        """What the buffers of the chain hold at this moment, and may hold, by step. Any thread may ask.

        Batches inside an executor, and one that the user holds, are in no buffer.
        """
        from ..optimize.memory import memory_report

        return memory_report(self._plan, self._settings, self._run or Run(self._settings))

    def state_dict(self) -> dict[str, Any]:
        """Where this iterator stands, as JSON: behind the last element that `next` returned.

        `load_state_dict` goes on there, in another process too: the same elements follow, the same random numbers
        included. It holds no data, only places: what was read, which pass it is, what a shuffle buffer holds (at most
        16 bytes an element). What cannot be told by a place is made again: a generator from its begin, a memory cache
        by reading its input, `unique` by seeing the elements again; see `explain()`.

        Raises:
            ClosedError: the iterator was closed before its end.
            StateError: a step that has no state.
        """
        if os.getpid() != self._pid:
            raise ClosedError("this iterator was created before a fork; make a new one in this process")
        if self._run is not None and self._run.is_inside():
            raise _inside("state_dict")
        if self._run is not None and self._run.surprise is not None:
            raise StateError(
                f"state_dict needs to know beforehand that elements come in any order, and {self._run.surprise}; "
                "use Options(deterministic=False) for the whole chain, or deterministic=True there"
            )
        with self._lock:
            if self._busy:
                raise _inside("state_dict")
            if self._done and not self._progress.ended:
                raise ClosedError("state_dict needs an iterator that is open, got one that was closed")
            if self.epoch is None and self._run is None:  # of a chain that was run before it is not the first one
                self._progress.epoch = next(self._left, None)
                if self.epoch is not None:
                    self._left = chain((self.epoch,), self._left)
            progress = self._progress
            if self._run is not None and self.epoch is not None:
                left_out, noted = self._run.bad.so_far(NOTED, self.epoch)
                progress = replace(progress, left_out=left_out, noted=Counter(noted))
            even = self._settings.on_error == "replace" or not (self.left_out or self.errors)
            flow = self._state if self._items is None else snapshot(self._items)
            return state_of(self._chain, progress, self._learned, even, self._progress.ended or self._over, flow)

    def load_state_dict(self, state: dict[str, Any] | Sequence[dict[str, Any]]) -> None:
        """Go on where `state_dict` was called. Before the first `next`.

        A state of ``shard(N, i)`` is taken by ``shard(M, j)`` too, if nothing but maps, batches and prefetch stands
        behind it and the N shards had all stopped at the same element of the whole (after as many steps, with batches
        of one size). Only a list of the states of all N shards shows that they had; of one it is believed.

        Args:
            state: what `state_dict` returned, also after a round trip through JSON; or a list of those of all shards.

        Raises:
            StateError: it belongs to another chain, to other files, options or another version; says what is another.
            PlanError: this iterator has begun already.
        """
        with self._lock:
            if self._run is not None or self._done or self._state is not None:
                raise PlanError("load_state_dict needs an iterator that has not begun; make a new one: iter(ds)")
            resume = Resume.checked(self._chain, state)
            progress = resume.progress
            epoch = progress.epoch
            if epoch is None:
                left = self._left
            elif resume.stand != "end":
                left = self._epochs(progress, epoch)
            else:  # the next one follows, if this iterator has more
                left = self._epochs.after(progress, epoch)
                following = next(left, None)
                if following is None:
                    self._done = progress.ended = True
                else:
                    progress.enter(following)
                    left = chain((following,), left)
            self._left, self._progress, self._learned = left, progress, resume.types
            self._plan, self._state = resume.plan, resume.flow
            self._loaded = epoch is not None and resume.stand != "end"

    def _open(self) -> Any:
        """Start the next epoch and give its elements; StopIteration where there is none."""
        epoch = next(self._left, None)
        if epoch is None:
            self._progress.ended = True
            raise StopIteration
        if self._loaded:
            self._loaded = False
        else:
            self._progress.enter(epoch)
            self._plan = self._chain.plan
        if self._run is None:
            run = Run(self._settings)
            run.bad.begin()
            run.bad.left_out = self._progress.left_out
            self._run = run
            watch(self, run)
            LIMITS.set(run.limits)
        self._run.epoch = epoch
        self._run.bad.before = self._progress.noted
        self._run.any_order = any_order(self._plan, self._settings.deterministic)
        self._share = self._run.bad.counts_good and self._settings.on_error != "replace"
        at = Context(self._run, epoch)
        self._over = True
        lowered = lower(self._plan, self._settings, at, self._learned)
        self._learned = lowered.learned
        self._structure = lowered.element.structure or Structure()
        self._batched = lowered.element.batched
        if self._done:  # closed by another thread, while the first element was looked at
            raise StopIteration
        state, self._state = self._state, None
        self._over = False
        try:
            if self._settings.on_error == "replace":
                self._items = StandIns(lowered.flow, at, self._batched, state)
            else:
                self._items = lowered.flow.open(at, state)
        except (TypeError, KeyError, IndexError, AttributeError, OverflowError, ValueError) as error:
            if state is None or isinstance(error, GpupipeError):
                raise
            raise StateError(f"load_state_dict needs a state as state_dict made it, got one with {error}") from error
        return self._items

    def close(self) -> None:
        """Stop every thread of this iterator and wait for them. Safe to call twice, and from any thread.

        Nothing is delivered behind it. A function of the chain that another thread's `next` is in cannot be broken off:
        that `next` ends as soon as the function comes back. A read that hangs can, under `Options.read_timeout`.
        """
        self._done = True
        if os.getpid() != self._pid:
            return
        if self._run is not None:
            self._run.stop()  # first of all: whoever forms a long batch looks at it
        if self._items is not None:
            close(self._items)
            self._items = None
        if self._run is not None:
            self._run.close()

    def abandon(self) -> None:
        """In a forked child: keep for ever what would wait for threads when it is destroyed."""
        keep_for_ever(self._items)


def _inside(method: str = "next") -> PlanError:
    return PlanError(
        f"{method}() needs to be called from outside, between two elements, got a call while the iterator works, by a "
        "function of the chain or a handler (of a signal, of the log); use another iterator in a function, or window, "
        "scan or zip, and let a handler set a flag to look at after next()"
    )
