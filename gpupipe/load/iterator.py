"""iterator: the iterator over a Dataset."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from time import perf_counter, process_time
from types import TracebackType
from typing import Any

from ..errors import ClosedError, DataError, DeviceError, GpupipeError, PlanError, StateError, TooManyBadError
from ..extract.images.decode import MOST_PIXELS
from ..extract.storage.forking import keep_forever
from ..extract.storage.waiting import LIMITS
from ..flow.element import BatchStream, Found, Stream, is_element
from ..flow.own_bytes import own_bytes
from ..flow.run import SILENT_REPLAY, Context, Run
from ..flow.state.snapshot import written
from ..flow.step import close
from ..graph.eager import ELEMENT
from ..graph.sites import users_frames
from ..log import logger
from ..optimize.lower.compile import lower_in
from ..options import Settings
from ..plan.arrival import any_order, refusal
from ..plan.mistakes import log_mistakes
from ..plan.node import ElementType, Node, walk
from ..spec import Structure
from .agreement import check_ranks
from .empty import log_empty
from .mark import Mark
from .progress import Numbers, Progress, Resume, is_strict, state_of
from .refusals import closed, from_inside
from .replace_errors import ODD, not_a_state, opened, rows_of
from .reports import Reports
from .schedule import Schedule
from .shutdown import check_files, first_run, next_run, watch
from .state import NOTED, StateHeader
from .stats import Loop

__all__ = ["DatasetIterator"]

AT_ONCE = -1
"""A number of delivered elements that is always reached."""


ENDS = (StopIteration, DeviceError, TooManyBadError, RecursionError)  # exceptions that close an iterator


class DatasetIterator(Reports, Iterator[Any]):
    """Iterates over a chain; a context manager. Nothing starts before the first `next`.

    Leaving a `with` block, `close()`, the end or garbage collection stop its threads. It survives the error of an
    element: `next` raises once, and the next call gives the next element.

    Ctrl-C inside `next`, and any other exception of a signal handler there that is no `Exception` (of `sys.exit()`, of
    a class of your own derived from BaseException), stops its threads and loses nothing: `state_dict` gives the
    position after the last delivered element, and the next `next` continues there. It resumes from a state taken
    shortly before, so what states do not hold is made again: a generator is called again (see `state_dict`). An
    Exception, raised inside a function of the chain or by a handler while an element is made, is an error of that
    element.

    A closed iterator raises `ClosedError`; one at its end raises StopIteration, every time.

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
        self._mark = Mark(None, 0)  # where the flow resumes when it is opened
        self._check_at = AT_ONCE  # the number of delivered elements at which `_ready` runs before the next one
        self._learned: dict[int, ElementType] = {}  # types that were learned from first elements
        self._run: Run | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None  # ends the run when this iterator is collected
        self._items: Any = None
        self._structure = Structure()
        self._batched = False
        self._count_good = False  # delivered elements are counted, for a share of bad ones in `Options.max_bad`
        self._stream: Stream | None = None
        self._rows = 1
        self._undelivered: tuple[Any, Any] | None = None  # counted, but not delivered: (first, (second, ...))
        # The error of an element that is being raised, what states know of the element, and whether it is one.
        self._raised: tuple[DataError, Found | None, bool] | None = None
        self._broken = False  # an exception went through the flow: its generators are finished, its threads are not
        self._loaded_at = -1  # elements that were delivered when a state was loaded
        self._done = False
        self._closed_because = "was closed"
        self._epoch_failed = False  # this epoch could not be opened: it gives no elements, and the next one follows
        self._failed_at = -1  # elements before the last place where the flow failed
        self._busy = False
        self._loop = Loop()
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
        run, most, pixels, limits, asked = self._run, self._most_pixels, MOST_PIXELS.get(), LIMITS.get(), perf_counter()
        if run is not None and limits is not None and run.is_inside():
            raise from_inside()
        # A handler may raise after any call: what must not be interrupted is assignments, and one call per `finally`.
        inside = counted = False
        try:
            try:
                try:
                    if pixels != most:
                        MOST_PIXELS.set(most)
                    if run is not None:
                        LIMITS.set(run.limits)
                    with self._lock:  # several threads may share an iterator; each gets different elements
                        if self._busy:
                            raise from_inside()
                        self._busy = inside = True
                        try:
                            element = self._next()
                            self._loop.waited(asked, self._progress.delivered)
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
            if counted:  # the next call delivers it
                self._undelivered, self._check_at = (element, self._undelivered), AT_ONCE
            elif inside:  # assigned before any call, after which a handler may raise again
                self._broken, self._check_at = True, AT_ONCE
            ours = isinstance(error, GpupipeError)
            if ours:
                error.with_traceback(users_frames(error))
            self._failed(error, was, inside and not counted)
            if ours:
                raise error from error.__cause__
            if self._progress.delivered == self._loaded_at and isinstance(error, ODD):
                raise not_a_state(error) from error
            raise
        if self._done and not self._progress.ended:  # another thread closed it: the element may be incomplete
            raise self._refusal()
        return element

    def _failed(self, error: BaseException, was: bool, broken: bool) -> None:
        """Handle an exception that leaves `next`. `was`: broken before; `broken`: it went through the flow."""
        raised, leaves = self._raised, False
        if broken and raised is not None and error is raised[0]:
            leaves = True
        elif broken and isinstance(error, PlanError) and self._items is not None:
            raised, leaves = None, True  # one for which a function returned no dataset counts as an element of the flow
        elif broken and self._items is None and isinstance(error, GpupipeError):
            self._broken = was
        elif broken and isinstance(error, DataError):
            self._give_up()
        if not isinstance(error, Exception):
            ELEMENT.set(None)  # a handler may have raised before a Python map could reset it
        if self._done:
            self.close()
            if isinstance(error, Exception):  # an effect of closing the iterator
                raise self._no_more() from None
        elif was if leaves else self._broken:
            with self._lock:
                if not self._busy:
                    self._abort()
        if leaves:  # last, and without a call: a handler could raise behind it, and the error would be lost
            state, at = self._mark.checkpoint
            self._mark.checkpoint = state, at - 1
            if raised is not None:
                _, found, counts = raised
                self._progress.raised += counts
                if found is not None:
                    found.error, found.cause = (), None
            self._broken, self._raised = was and self._broken, None

    def _give_up(self) -> None:
        """End the epoch where its flow cannot be opened, or not go on, for the second time: it would fail for ever."""
        progress = self._progress
        at = progress.delivered + progress.raised
        if self._failed_at == at or not (progress.in_epoch or progress.raised):
            self._schedule.started, self._epoch_failed = False, True
        self._failed_at = at

    def _end(self, error: BaseException) -> None:
        """Close this iterator: it is at its end, or its run cannot continue."""
        if not isinstance(error, StopIteration):
            self._closed_because = f"was ended by a {type(error).__name__}"
        self.close()
        if isinstance(error, RecursionError):  # each step calls the one before it, too deep for Python
            raise PlanError(
                f"the chain is too deep to run: {len(walk(self._plan))} steps, and Python nests "
                f"{sys.getrecursionlimit()} calls; let one function do what several do"
            ) from error

    def _refusal(self) -> StopIteration | ClosedError:
        if os.getpid() != self._pid:
            return ClosedError("this iterator was created before a fork; make a new one in this process")
        self.close()  # an earlier call may have been interrupted
        return self._no_more()

    def _no_more(self) -> StopIteration | ClosedError:
        return StopIteration() if self._progress.ended else self._closed("next()")

    def _closed(self, method: str) -> ClosedError:
        return closed(method, self._closed_because)

    def _next(self) -> Any:
        progress = self._progress
        while True:
            if progress.delivered < self._check_at:
                items = self._items
            else:
                if self._undelivered is not None:
                    given, self._undelivered = self._undelivered
                    progress.delivered -= 1
                    return given
                items = self._ready()
            element = next(items, None)
            if element is None:
                close(self._items)
                if not (progress.in_epoch or progress.raised or progress.look or self._done):
                    log_empty(self._plan)
                self._schedule.started, self._items, self._check_at = False, None, AT_ONCE
                continue
            value = element[0]
            if type(value) is tuple:
                value = own_bytes(value)
                self._stream = element[1]
                if self._batched or isinstance(element[1], BatchStream):
                    self._rows = rows_of(value[0])
                    self._loop.rows += abs(self._rows)  # -1: it has no rows
                if self._count_good:
                    assert self._run is not None
                    self._run.bad.good += max(1, self._rows)
                return self._structure.unflatten(value)
            assert self._run is not None
            counts = is_element(element)
            error = self._run.settle(element)
            if error is not None:
                self._raised = error, element[0].found, counts
                raise error
            state, at = self._mark.checkpoint
            # No call from here on: a handler could raise behind it, and the element would be made, and counted, again.
            self._mark.checkpoint = state, at - 1
            progress.raised += counts

    def _ready(self) -> Any:
        """Return the running flow: opened if it is not open, with its state taken if that is due."""
        if self._broken:
            self._abort()
        if self._done:
            raise self._no_more()
        if self._items is None:
            self._open()
        else:
            assert self._run is not None
            self._mark.renew(self._items, self._progress.delivered, self._rows, self._run.bad.found.count)
        self._check_at = self._mark.next_at
        return self._items

    def _abort(self) -> None:
        """Close a flow that an exception went through. It is opened again, after the last delivered element."""
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
        """Return the state of this iterator after the last element that `next` returned, as JSON.

        `load_state_dict` resumes there, in another process, too: the same elements follow, with the same random
        numbers. A state holds no data, only positions: what was read, which pass it is, what a shuffle buffer holds (at
        most 16 bytes an element). What a position cannot give is made again: a generator runs from its start, a memory
        cache reads its input, `unique` sees the elements again; see `explain()`. After an exception that went through
        `next`, the state also says how many elements to skip.

        If elements come in any order (``deterministic=False``), they cannot be made again: a chain has a state if its
        steps hold no elements, or only records in a shuffle buffer, but not after such an exception.

        Files are identified by their names below the folder of the pattern, those of a list by their last components,
        so they may move to another folder; a path that Python code or `from_tensors` gives is kept as it is.
        Which sizes or contents are compared says `Options.compare_files`.

        Raises:
            ClosedError: the iterator was closed before its end.
            StateError: a step holds elements that came in any order; says which one, and what to do.
            DataError: a file whose digest is needed cannot be read.
        """
        if os.getpid() != self._pid:
            raise self._refusal()
        if self._run is not None and self._run.is_inside():
            raise from_inside("state_dict")
        with self._lock:
            if self._busy:
                raise from_inside("state_dict")
            if self._done and not self._progress.ended:
                raise self._closed("state_dict")
            try:
                return self._state()
            except GpupipeError:
                raise
            except BaseException:
                self._broken, self._check_at = True, AT_ONCE  # the snapshot may have been interrupted in the middle
                raise

    def _check_order(self, method: str, replayed: int = 0) -> None:
        """Check that the chain has a state, and that no elements that came in any order have to be made again.

        Raises:
            StateError: the chain has no state here.
        """
        run = self._run
        if run is not None and run.stateless is not None:
            raise StateError(f"{method} needs elements that can be read again: {run.stateless}")
        if run is not None and run.any_order and replayed:
            raise StateError(
                f"{method} needs elements that can be read again, got an interrupt after some that came in any order; "
                "load a state that was saved between two elements, or use deterministic=True"
            )

    def _state(self) -> dict[str, Any]:
        if self._broken:
            self._abort()
        progress = self._progress
        if self.epoch is None and self._run is None:  # the first epoch of a chain that ran before is not number 0
            progress.epoch = self._schedule.coming()
        undelivered, rest = 0, self._undelivered
        while rest is not None:
            undelivered, rest = undelivered + 1, rest[1]
        flow, at = self._mark.checkpoint
        skip = progress.delivered - undelivered - at
        needed: int | None = self._mark.since
        if self._items is not None and not undelivered:
            flow, skip, needed = self._items.snapshot(), 0, None
        ended = self._progress.ended or self._epoch_failed
        if not ended and (self._items is not None or skip):
            self._check_order("state_dict", skip)
        progress = replace(progress, delivered=progress.delivered - undelivered)
        if self._run is not None and self.epoch is not None:
            left_out, noted = self._run.bad.so_far(NOTED, self.epoch)
            progress.left_out, progress.noted = left_out, Counter(noted)
        even = not (self.left_out or self.errors)
        if self._settings.on_error == "replace":
            even = all(record.unit != "file" for record in self.errors)
        flow, first = written(flow)
        if self._run is not None:
            self._chain.opened = self._run.limits.opened
        if self._run is not None:
            progress.caches = self._run.bad.found.in_full_caches()
        if self._run is not None and not ended:
            found, progress.listed = self._run.bad.found, len(self._run.bad.known) > 0
            progress.bad = found.since(min([n for n in (first, needed) if n is not None], default=found.count))
        return state_of(self._chain, progress, self._learned, even, ended, flow, skip)

    def load_state_dict(self, state: dict[str, Any] | Sequence[dict[str, Any]], *, strict: bool | None = None) -> None:
        """Resume where `state_dict` was called. Only before the first `next`.

        ``shard(M, j)`` takes a state of ``shard(N, i)``, too, if only maps, batches and prefetch follow it, and all N
        shards stopped at the same element of the whole dataset (after as many steps, with batches of one size). A list
        of the states of all N shards is checked for that; a single state is not. Under `even`, the rest of the elements
        is dropped or wrapped around for M shards.

        Args:
            state: what `state_dict` returned, also after a round trip through JSON; or a list of those of all shards.
            strict: False goes on from a state that is refused otherwise: in its epoch, after as many elements of this
                chain, which may be others, and a warning lists what differs. By default `Options.strict_states` says.

        Raises:
            StateError: the state belongs to another chain, to other files, options or another version; says which. One
                that is damaged is refused always.
            DataError: a file whose digest is needed cannot be read.
            PlanError: this iterator has started already.
        """
        with self._lock:
            if self._run is not None or self._done or self._mark.checkpoint[0] is not None:
                raise PlanError("load_state_dict needs an iterator that has not started; make a new one: iter(ds)")
            resume = Resume.checked(self._chain, state, is_strict(strict, self._settings))
            progress = resume.progress
            self._schedule.load(progress, resume.phase == "end")
            if progress.bad is not None and progress.bad[0] and not progress.bad[1]:
                logger.warning(
                    "load_state_dict: so many elements were bad before the state that it does not name all of them: if "
                    "some can be read now, others follow than would have followed"
                )
            self._done, self._loaded_at = progress.ended, progress.delivered
            self._progress, self._learned, self._plan = progress, resume.types, resume.plan
            self._mark = Mark(resume.flow, progress.delivered - resume.skip)  # needs all bad elements of the state

    def _start_epoch(self) -> None:
        """Start the next epoch, or resume the one of a loaded state."""
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
            self._run.bad.found.start(*(self._progress.bad or ([], True, [])))
            self._run.limits.opened.clear()
            self._run.limits.changed.clear()
        check_ranks(self._chain, self._progress, epoch)
        self._schedule.start()

    def _new_run(self, epoch: int) -> Run:
        """Return the run of this iterator; after an interrupt a new one, with the bad elements of the old one."""
        run = self._run
        if run is None or run.stopped.on:
            if run is None:
                run = first_run(self._settings, self._progress)
            else:
                run = next_run(run, epoch, self._mark.needed())
            self._run = run
            self._finalizer = watch(self, run, self._finalizer)
            self._loop.look, self._loop.look_at = run.tuner.look, 0.0
        run.epoch = epoch
        return run

    def _open(self) -> None:
        """Open the flow of the next epoch, or of the current one again; StopIteration if there is no other epoch."""
        if not self._schedule.started:
            self._start_epoch()
        try:
            self._open_epoch()
        except DataError:  # the epoch's own data is bad; other errors may be those of this machine
            self._schedule.started, self._epoch_failed = False, True
            raise

    def _open_epoch(self) -> None:
        epoch = self._progress.epoch
        assert epoch is not None
        run = self._new_run(epoch)
        LIMITS.set(run.limits)
        check_files(run.limits, self._progress.in_epoch > 0)
        run.stateless = refusal(self._plan, self._settings)
        run.any_order = run.stateless is None and any_order(self._plan, self._settings.deterministic) is not None
        self._count_good = run.bad.counts_good and self._settings.on_error != "replace"
        at = Context(run, epoch)
        state, start = self._mark.checkpoint
        silent = SILENT_REPLAY.get()
        try:
            # What is peeked at for its type is made again then: a cache that was full and is lost has such an input.
            run.from_start = state is None
            SILENT_REPLAY.set(state is not None or self._progress.delivered > start)
            lowered = lower_in(self._plan, self._settings, at, self._learned)
        finally:
            SILENT_REPLAY.set(silent)
        self._learned = lowered.learned
        self._structure = lowered.element.structure or Structure()
        self._batched = lowered.element.batched
        if self._done:  # another thread closed it while the first element was peeked at
            raise self._closed("next()")
        self._epoch_failed = False
        if run.any_order or run.stateless is not None:
            self._mark.keep()
        state, start = self._mark.checkpoint
        skip = self._progress.delivered - start
        if skip or state is not None:
            self._check_order("next(), to continue after an interrupt,", skip)
        if not self._progress.delivered:
            log_mistakes(self._plan)
        self._items = opened(lowered.flow, at, written(state)[0], skip, self._batched)

    def close(self) -> None:
        """Stop every thread of this iterator and wait for them. Safe to call twice, and from any thread.

        No element is delivered after it. A function of the chain that another thread's `next` is running cannot be
        interrupted: that `next` ends as soon as the function returns. A read that hangs ends after
        `Options.read_timeout`.
        """
        self._done, self._check_at = True, AT_ONCE
        if os.getpid() != self._pid:
            return
        self._loop.closed = self._loop.closed or process_time()
        if self._run is not None:
            self._run.stop()  # first, so that a thread which is filling a long batch stops
        if not self._busy:  # a thread inside `next` closes the flow itself when it leaves, as it finds `_done` set
            with self._lock:
                close(self._items)
                self._items = None
        if self._run is not None:
            self._run.close()

    def release(self) -> None:
        """At exit, close the flow, unless another thread is inside `next`."""
        if os.getpid() == self._pid and self._lock.acquire(blocking=False):
            try:
                if not self._busy:
                    close(self._items)
            finally:
                self._lock.release()

    def abandon(self) -> None:
        """In a forked child, keep the flow forever: its destruction would wait for threads."""
        keep_forever(self._items)
