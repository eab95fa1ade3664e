"""iterator: what a `for` loop over a Dataset holds."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from ..errors import ClosedError, DataError, DeviceError, GpupipeError, PlanError, StateError, TooManyBadError
from ..extract.images.decode import MOST_PIXELS
from ..extract.storage.forking import keep_forever
from ..extract.storage.waiting import LIMITS
from ..flow.element import BatchStream, Stream, own_bytes
from ..flow.run import Context, Run
from ..flow.state.snapshot import to_json
from ..flow.step import close
from ..graph.eager import ELEMENT
from ..optimize.lower.compile import lower_in
from ..options import Settings
from ..plan.arrival import any_order, refusal
from ..plan.node import ElementType, Node, walk
from ..spec import Structure
from .mark import Mark
from .progress import Numbers, Progress, Resume, state_of
from .replace_errors import opened, rows_of
from .reports import Reports
from .schedule import Schedule
from .shutdown import begun, continued, watch
from .state import NOTED, StateHeader

__all__ = ["DatasetIterator"]

ALWAYS = -1
"""Elements delivered: there are never fewer."""


ENDS = (StopIteration, DeviceError, TooManyBadError, RecursionError)  # what closes an iterator


class DatasetIterator(Reports, Iterator[Any]):
    """Iterates over a chain; a context manager. Nothing starts before the first `next`.

    Leaving a loop, an exception, `close()` or garbage collection stop its threads. It survives an error: `next`
    raises once, and the call after it gives the next element.

    Ctrl-C inside `next`, and whatever else a signal's handler raises there (`sys.exit()`, say), stops its threads and
    loses nothing: `state_dict` says where the last delivered element was, and the next `next` goes on behind it. It
    begins at a state that was taken shortly before, so what states do not hold is made again: a generator is called
    anew (see `state_dict`). An Exception that strikes in a function of the chain is an error of its element.

    A closed iterator raises `ClosedError`; one at its end raises StopIteration, as often as it is asked.

    Args:
        plan: the chain.
        settings: its options.
        epochs: the numbers of the epochs.
    """

    def __init__(self, plan: Node, settings: Settings, epochs: Numbers) -> None:
        self._plan = plan
        self._settings = settings
        self._most_pixels = settings.max_pixels
        self._chain = StateHeader(plan, settings)
        self._progress = Progress()
        self._schedule = Schedule(epochs, self._progress)
        self._mark = Mark(None, 0)  # where the flow goes on when it is opened
        self._look = ALWAYS  # so many are delivered when `_ready` has something to do before the next one
        self._learned: dict[int, ElementType] = {}  # types that only first elements told
        self._run: Run | None = None
        self._ending: weakref.finalize[Any, Any] | None = None  # of the run, with this iterator
        self._items: Any = None
        self._structure = Structure()
        self._batched = False
        self._share = False  # of bad elements, which `Options.max_bad` limits: what is delivered is counted
        self._given: Stream | None = None
        self._rows = 1
        self._late: tuple[Any, Any] | None = None  # elements that were counted and not delivered: (the first, others)
        self._told: DataError | None = None  # the error of an element, on its way out
        self._broken = False  # an exception went through the flow: its generators are finished, its threads not
        self._done = False
        self._why = "was closed"  # ... and by what
        self._over = False  # this epoch could not be opened: it gives nothing, the next one follows
        self._busy = False
        self._pid = os.getpid()
        self._lock = threading.RLock()

    def __iter__(self) -> DatasetIterator:
        return self

    def __enter__(self) -> DatasetIterator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __next__(self) -> Any:
        if self._done or os.getpid() != self._pid:
            raise self._refusal()
        run, most, pixels, limits = self._run, self._most_pixels, MOST_PIXELS.get(), LIMITS.get()
        if run is not None and limits is not None and run.is_inside():
            raise _inside()
        # An exception of a signal handler may strike behind every call, here and below. What must not be cut short is
        # plain assignments, and in each `finally` one call, which is made in any case.
        inside = counted = False
        try:
            try:
                try:
                    if pixels != most:
                        MOST_PIXELS.set(most)
                    if run is not None:
                        LIMITS.set(run.limits)
                    with self._lock:  # several threads may take from one iterator; each gets other elements
                        if self._busy:
                            raise _inside()
                        self._busy = inside = True
                        try:
                            element = self._next()
                            self._progress.delivered += 1
                            counted = True
                        finally:
                            self._busy = False
                finally:
                    if pixels != most:
                        MOST_PIXELS.set(pixels)
            finally:
                LIMITS.set(limits)
        except ENDS as error:
            self._end(error)
            raise
        except BaseException as error:
            was = self._broken
            if counted:  # it is delivered next time
                self._late, self._look = (element, self._late), ALWAYS
            elif inside:  # before any call: behind each of them another exception of a handler may strike
                self._broken, self._look = True, ALWAYS
            self._failed(error, was, inside and not counted)
            raise
        if self._done and not self._progress.ended:  # by another thread: what was cut short is not delivered
            raise self._refusal()
        return element

    def _failed(self, error: BaseException, was: bool, broken: bool) -> None:
        """Deal with an exception on its way out of `next`. `was`: broken before; `broken`: it went through the flow."""
        if broken and (error is self._told or (isinstance(error, PlanError) and self._items is not None)):
            self._told = None  # it stands for an element, if only for one that a function made no dataset of
            self._mark.passed()
            self._broken = was
        elif broken and self._items is None and isinstance(error, GpupipeError):
            self._broken = was
        if not isinstance(error, Exception):
            ELEMENT.set(None)  # a handler may have struck where a Python map was about to take it back
        if self._done:
            self.close()
            if isinstance(error, Exception):  # what closing it has broken off is no error
                raise self._no_more() from None
        elif self._broken:
            with self._lock:
                if not self._busy:
                    self._break_off()

    def _end(self, error: BaseException) -> None:
        """Close this iterator: it is at its end, or what its run needs is not there any more."""
        if not isinstance(error, StopIteration):
            self._why = f"was ended by a {type(error).__name__}"
        self.close()
        if isinstance(error, RecursionError):  # each step asks the one below: Python cannot nest so many calls
            raise PlanError(
                f"the chain is too deep to run: {len(walk(self._plan))} steps, and Python nests "
                f"{sys.getrecursionlimit()} calls; let one function do what several do"
            ) from error

    def _refusal(self) -> StopIteration | ClosedError:
        if os.getpid() != self._pid:
            return ClosedError("this iterator was created before a fork; make a new one in this process")
        self.close()  # it may have been cut short
        return self._no_more()

    def _no_more(self) -> StopIteration | ClosedError:
        return StopIteration() if self._progress.ended else self._closed("next()")

    def _closed(self, method: str) -> ClosedError:
        return ClosedError(
            f"{method} needs an iterator that is open, got one that {self._why}; make a new one: iter(ds)"
        )

    def _next(self) -> Any:
        progress = self._progress
        while True:
            if progress.delivered < self._look:
                items = self._items
            else:
                if self._late is not None:
                    given, self._late = self._late
                    progress.delivered -= 1
                    return given
                items = self._ready()
            element = next(items, None)
            if element is None:
                close(self._items)
                self._schedule.started, self._items, self._look = False, None, ALWAYS
                continue
            value = element[0]
            if type(value) is tuple:
                value = own_bytes(value)
                self._given = element[1]
                if self._batched or isinstance(element[1], BatchStream):
                    self._rows = rows_of(value[0])
                if self._share:
                    assert self._run is not None
                    self._run.bad.good += max(1, self._rows)
                return self._structure.unflatten(value)
            assert self._run is not None
            error = self._run.settle(element)
            if error is not None:
                self._told = error
                raise error
            self._mark.passed()

    def _ready(self) -> Any:
        """What the next element is taken from: opened if it is not open, with its state taken if that is due."""
        if self._broken:
            self._break_off()
        if self._done:
            raise self._no_more()
        if self._items is None:
            self._open()
        else:
            self._mark.move(self._items, self._progress.delivered, self._rows)
        self._look = self._mark.look
        return self._items

    def _break_off(self) -> None:
        """Stop what an exception went through. It is opened anew where it is needed, behind what was delivered."""
        if self._run is not None:
            self._run.stop()
        if self._items is not None:
            close(self._items)
            self._items = None
        if self._run is not None:
            self._run.close()
        self._schedule.repair(self._progress)
        self._broken = False

    def state_dict(self) -> dict[str, Any]:
        """Where this iterator stands, as JSON: behind the last element that `next` returned.

        `load_state_dict` goes on there, in another process too: the same elements follow, the same random numbers
        included. It holds no data, only places: what was read, which pass it is, what a shuffle buffer holds (at most
        16 bytes an element). What cannot be told by a place is made again: a generator from its begin, a memory cache
        by reading its input, `unique` by seeing the elements again; see `explain()`. Behind an exception that went
        through `next` it says how many elements are to be passed over, too.

        Where elements come in any order (``deterministic=False``), nothing can be made again: a chain has a state if
        its steps hold nothing of them, or only records in a shuffle buffer, and none behind such an exception.

        It says which files there are by their names below the folder of the pattern, in a list by their last
        components, so that they may lie in another folder; a path that Python code or `from_tensors` gives is kept as
        it is. `Options(file_digests=True)` adds digests of what they hold.

        Raises:
            ClosedError: the iterator was closed before its end.
            StateError: a step holds elements that came in any order; says which, and the way out.
            DataError: a file that a digest is needed of cannot be read.
        """
        if os.getpid() != self._pid:
            raise self._refusal()
        if self._run is not None and self._run.is_inside():
            raise _inside("state_dict")
        with self._lock:
            if self._busy:
                raise _inside("state_dict")
            if self._done and not self._progress.ended:
                raise self._closed("state_dict")
            try:
                return self._state()
            except GpupipeError:
                raise
            except BaseException:
                self._broken, self._look = True, ALWAYS  # a snapshot that was cut short may have left half of it
                raise

    def _check_order(self, method: str, behind: int = 0) -> None:
        """Check that there is a state, and that nothing has to be made again where it came in any order.

        Raises:
            StateError: there is none.
        """
        run = self._run
        if run is not None and run.stateless is not None:
            raise StateError(f"{method} needs elements that can be read again: {run.stateless}")
        if run is not None and run.any_order and behind:
            raise StateError(
                f"{method} needs elements that can be read again, got an interrupt behind some that came in any order; "
                "load a state that was saved between two elements, or use deterministic=True"
            )

    def _state(self) -> dict[str, Any]:
        if self._broken:
            self._break_off()
        progress = self._progress
        if self.epoch is None and self._run is None:  # of a chain that was run before it is not the first one
            progress.epoch = self._schedule.coming()
        late, others = 0, self._late
        while others is not None:
            late, others = late + 1, others[1]
        flow, at = self._mark.place
        behind = progress.delivered - late - at
        if self._items is not None and not late:
            flow, behind = self._items.snapshot(), 0
        ended = self._progress.ended or self._over
        if not ended and (self._items is not None or behind):
            self._check_order("state_dict", behind)
        progress = replace(progress, delivered=progress.delivered - late)
        if self._run is not None and self.epoch is not None:
            left_out, noted = self._run.bad.so_far(NOTED, self.epoch)
            progress.left_out, progress.noted = left_out, Counter(noted)
        even = not (self.left_out or self.errors)
        if self._settings.on_error == "replace":
            even = all(record.unit != "file" for record in self.errors)
        return state_of(self._chain, progress, self._learned, even, ended, flow, behind)

    def load_state_dict(self, state: dict[str, Any] | Sequence[dict[str, Any]]) -> None:
        """Go on where `state_dict` was called. Before the first `next`.

        A state of ``shard(N, i)`` is taken by ``shard(M, j)`` too, if nothing but maps, batches and prefetch stands
        behind it and the N shards had all stopped at the same element of the whole (after as many steps, with batches
        of one size). Only a list of the states of all N shards shows that they had; of one it is believed. Under `even`
        what is left is dropped or wrapped around for M shards.

        Args:
            state: what `state_dict` returned, also after a round trip through JSON; or a list of those of all shards.

        Raises:
            StateError: it belongs to another chain, to other files, options or another version; says what is another.
            DataError: a file that a digest is needed of cannot be read.
            PlanError: this iterator has begun already.
        """
        with self._lock:
            if self._run is not None or self._done or self._mark.place[0] is not None:
                raise PlanError("load_state_dict needs an iterator that has not begun; make a new one: iter(ds)")
            resume = Resume.checked(self._chain, state)
            progress = resume.progress
            self._schedule.load(progress, resume.stand == "end")
            self._done = progress.ended
            self._progress, self._learned, self._plan = progress, resume.types, resume.plan
            self._mark = Mark(resume.flow, progress.delivered - resume.behind)

    def _enter(self) -> None:
        """Begin the next epoch, or the one that a state was loaded of."""
        epoch = self._schedule.coming()
        if epoch is None:
            self._progress.ended = True
            raise StopIteration
        if not self._schedule.loaded:
            self._progress.enter(epoch)
            self._plan = self._chain.plan
            self._mark = Mark(None, self._progress.delivered)
        if self._run is not None:
            self._run.bad.before = self._progress.noted
        self._schedule.start()

    def _running(self, epoch: int) -> Run:
        """The run of this iterator: a new one behind an interrupt, with the bad elements of the one before."""
        run = self._run
        if run is None or run.stopped.is_set():
            self._run = run = begun(self._settings, self._progress) if run is None else continued(run, epoch)
            self._ending = watch(self, run, self._ending)
        run.epoch = epoch
        return run

    def _open(self) -> None:
        """Start the next epoch, or go on with the present one; StopIteration at the end."""
        if not self._schedule.started:
            self._enter()
        epoch = self._progress.epoch
        assert epoch is not None
        run = self._running(epoch)
        LIMITS.set(run.limits)
        run.stateless = refusal(self._plan, self._settings)
        run.any_order = run.stateless is None and any_order(self._plan, self._settings.deterministic) is not None
        self._share = run.bad.counts_good and self._settings.on_error != "replace"
        at = Context(run, epoch)
        try:
            lowered = lower_in(self._plan, self._settings, at, self._learned)
        except DataError:  # of its elements; any other may be of this machine alone
            self._schedule.started, self._over = False, True
            raise
        self._learned = lowered.learned
        self._structure = lowered.element.structure or Structure()
        self._batched = lowered.element.batched
        if self._done:  # closed by another thread, while the first element was looked at
            raise self._closed("next()")
        self._over = False
        if run.any_order or run.stateless is not None:
            self._mark.stay()
        state, begin = self._mark.place
        behind = self._progress.delivered - begin
        if behind or state is not None:
            self._check_order("next(), to go on behind an interrupt,", behind)
        self._items = opened(lowered.flow, at, to_json(state), behind, self._batched)

    def close(self) -> None:
        """Stop every thread of this iterator and wait for them. Safe to call twice, and from any thread.

        Nothing is delivered behind it. A function of the chain that another thread's `next` is in cannot be broken off:
        that `next` ends as soon as the function comes back. A read that hangs can, under `Options.read_timeout`.
        """
        self._done, self._look = True, ALWAYS
        if os.getpid() != self._pid:
            return
        if self._run is not None:
            self._run.stop()  # first of all: whoever forms a long batch looks at it
        if not self._busy:  # who is inside closes what it takes from when it leaves: it finds this iterator done
            with self._lock:
                close(self._items)
                self._items = None
        if self._run is not None:
            self._run.close()

    def release(self) -> None:
        """At exit: let go of what elements are taken from, if nobody is just taking one."""
        if os.getpid() == self._pid and self._lock.acquire(blocking=False):
            try:
                if not self._busy:
                    close(self._items)
            finally:
                self._lock.release()

    def abandon(self) -> None:
        """In a forked child: keep for ever what would wait for threads when it is destroyed."""
        keep_forever(self._items)


def _inside(method: str = "next") -> PlanError:
    return PlanError(
        f"{method}() needs to be called from outside, between two elements, got a call while the iterator works, by a "
        "function of the chain or a handler (of a signal, of the log); use another iterator in a function, or window, "
        "scan or zip, and let a handler set a flag to look at after next()"
    )
