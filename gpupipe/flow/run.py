"""run: one run of a chain, and the contexts in which its steps are opened."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ..errors import BadRecord, DataError
from ..extract.storage.forking import keep_for_ever, renew_lock
from ..extract.storage.waiting import LIMITS, Limits
from ..log import logger
from ..options import Settings, cpu_count
from ..random import ROOT, hash64, mix64, pass_number, place_key, step_seed
from ..threads import DaemonPool, Flag
from .bad.policy import ErrorPolicy
from .bad.records import REASON, Action, BadRecords, KnownBad
from .element import BatchStream, Element, Raised, Stream
from .kept import Home
from .step import Running, State

__all__ = ["PEEKING", "SILENT_REPLAY", "Context", "Flow", "PeekedErrors", "Run"]

REMOTE_READERS = 16
"""As many as the default interleave has files open."""


class Flow(Protocol):
    """A step of a running chain, before it runs."""

    def open(self, at: Context, state: State = None) -> Running:
        """Start a pass, or go on after a snapshot of one."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """What a source is opened in. Keys come from here, top-down (`random.place_key`).

    Attributes:
        run: the run it belongs to.
        epoch: number of the iterator.
        key: mixes in all of the numbers below.
        alike: all but `zipped`, so it is equal in all inputs of a zip.
        outer: key of the outer element.
        outer_alike: the same without the inputs of zips.
        branch: number of the input of a concatenation or mixture.
        passes: number of the pass.
        zipped: inputs of zips, mixed.
        mixtures: how many of them this is an input of, one inside the other.
        params: the columns of the outer elements of `interleave` and `flat_map`, the innermost last.
    """

    run: Run
    epoch: int = 0
    key: int = ROOT
    alike: int = ROOT
    outer: int = ROOT
    outer_alike: int = ROOT
    branch: int = 0
    passes: int = 0
    zipped: int = 0
    mixtures: int = 0
    params: tuple[Any, ...] = ()

    def in_pass(self, index: int, count: int) -> Context:
        """The context of pass `index` of `count`, which is negative for endless."""
        passes = pass_number(self.passes, index, count)
        return self if passes == self.passes else self._at(passes=passes)

    def in_branch(self, first: int) -> Context:
        """The context of an input of a concatenation, in front of which there are `first` branches."""
        return self if first == 0 else self._at(branch=self.branch + first)

    def in_mixture(self, first: int) -> Context:
        """The context of an input of a mixture, in front of which there are `first` branches."""
        return self._at(branch=self.branch + first, mixtures=self.mixtures + 1)

    def in_zip(self, number: int, index: int) -> Context:
        """The context of input `index` of the zip with this number; that of number 0 is this one."""
        return self if index == 0 else self._at(zipped=mix64(mix64(self.zipped, number), index))

    def _at(self, **numbers: Any) -> Context:
        at = replace(self, **numbers)
        key = place_key(at.outer, at.branch, at.passes, at.zipped)
        return replace(at, key=key, alike=place_key(at.outer_alike, at.branch, at.passes))

    # Both are called for every outer element: `replace` would cost as much as all the rest.

    def inside(self, stream: Stream, position: int) -> Context:
        """The context of a dataset made from the element at this position."""
        key = mix64(stream.key, position)
        alike = key if stream.alike == stream.key else mix64(stream.alike, position)
        return Context(self.run, self.epoch, key, alike, key, alike, 0, 0, 0, 0, self.params)

    def with_param(self, columns: Any) -> Context:
        """The context of the traced plan of a function, applied to these columns."""
        numbers = (self.branch, self.passes, self.zipped, self.mixtures)
        keys = (self.key, self.alike, self.outer, self.outer_alike)
        return Context(self.run, self.epoch, *keys, *numbers, (*self.params, columns))

    def neutral(self) -> Context:
        """The context of a cache's input: its contents depend on the seed and on identity only."""
        return Context(self.run)

    def stream(self, kind: str, name: str, unit: str = "index") -> Stream:
        """The stream of a source that is opened here.

        Args:
            kind: tells sources of one place apart.
            name: for people.
            unit: of positions.
        """
        mixed = hash64(kind)
        key = mix64(self.key, mixed)
        return Stream(key, name, unit, key if self.alike == self.key else mix64(self.alike, mixed))

    def draws(self, seed: int | None, anew: bool) -> tuple[int, int, int]:
        """Seed, epoch and key of what a step draws that is opened here.

        Args:
            seed: of the step. One that is given takes the place of the inputs of zips.
            anew: other draws in every epoch, pass and branch; otherwise the outer element alone counts.
        """
        here, outer = (self.key, self.outer) if seed is None else (self.alike, self.outer_alike)
        epoch, key = (self.epoch, here) if anew else (0, outer)
        return step_seed(self.run.settings.seed, seed), epoch, key


@dataclass(slots=True)
class Counters:
    """What one stage has done so far."""

    busy: float = 0.0
    waiting: float = 0.0
    elements: int = 0
    bytes: int = 0
    holes: int = 0


@dataclass(eq=False)
class Run:
    """Everything that lives as long as one iterator: settings, the stop flag, threads and what to close.

    Attributes:
        idle: where worker processes wait for the next pass, if they end with the run.
        epoch: that is being run, for reports.
        bad: the bad elements so far.
        limits: what ends its reads; each of its threads is told of them (`LIMITS`).
        any_order: some step gives what is ready first, and the chain has a state nevertheless: nothing is read again.
        stateless: why the chain has no state, if it has none.
        counting: somebody only asks how many elements there are.
        on_gpu: whether the arrays of a delivered column are, where only the first of them tells.
    """

    settings: Settings
    stopped: threading.Event = field(default_factory=Flag)
    counters: dict[str, Counters] = field(default_factory=dict)
    epoch: int = 0
    bad: BadRecords = field(init=False)
    limits: Limits = field(init=False)
    idle: Home = field(default_factory=Home)
    any_order: bool = False
    stateless: str | None = None
    counting: bool = False
    on_gpu: dict[int, bool] = field(default_factory=dict)
    _lost: set[tuple[int, int]] = field(default_factory=set)
    _buffers: weakref.WeakKeyDictionary[Any, str] = field(default_factory=weakref.WeakKeyDictionary)
    _closers: dict[Callable[[bool], None], None] = field(default_factory=dict)
    _readers: DaemonPool | None = None
    _remote: DaemonPool | None = None
    # Reentrant: the garbage collector may close a run in a thread that is just here.
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.bad = BadRecords(self.settings)
        self.limits = Limits(self.settings.read_timeout, self.stopped)
        renew_lock(self.bad)

    def is_inside(self) -> bool:
        """Whether this thread works for the run, in `next` or in a thread of its own: here nobody may wait for it.

        So it does while a function of the chain iterates over another one.
        """
        at = LIMITS.get()
        while at is not None and at is not self.limits:
            at = at.outer
        return at is not None

    @property
    def readers(self) -> DaemonPool | None:
        """A thread that reads ahead, None where two CPUs or fewer have better work for it.

        One thread: on cached files it gave 60-69 thousand records/s where four gave 33-51. On two CPUs none: with the
        reader thread a record of 126 KB cost 27 CPU-us and 34 thousand came per second, without it 23 and 42.
        """
        if cpu_count() <= 2:
            return None
        with self._lock:
            if self._readers is None:
                self._readers = DaemonPool(1, "gpupipe-reader")
            return self._readers

    @property
    def remote_readers(self) -> DaemonPool:
        """Threads that read remote files ahead: each waits for the network most of the time."""
        with self._lock:
            if self._remote is None:
                self._remote = DaemonPool(REMOTE_READERS, "gpupipe-remote")
                self.on_close(self._remote.close)
            return self._remote

    def on_close(self, closer: Callable[[bool], None]) -> None:
        """Call `closer` when the run ends, with whether to wait for threads."""
        with self._lock:
            self._closers[closer] = None

    def forget(self, closer: Callable[[bool], None]) -> None:
        """Take that back, as the last thing of what `closer` does: one that is cut short is called again."""
        with self._lock:
            if not self.stopped.is_set():  # `close` forgets those that have done all of it
                self._closers.pop(closer, None)

    def track_buffer(self, buffer: Any, step: str) -> None:
        """Note something that holds elements (see `flow.memory.Buffer`) and the step it belongs to, for reports."""
        with self._lock:
            self._buffers[buffer] = step

    def buffer_usage(self) -> dict[str, tuple[int, int]]:
        """Elements and bytes in every live buffer now, by step."""
        with self._lock:
            buffers = list(self._buffers.items())
        found: dict[str, tuple[int, int]] = {}
        for buffer, step in buffers:
            before, now = found.get(step, (0, 0)), buffer.buffer_usage()
            found[step] = before[0] + now[0], before[1] + now[1]
        return found

    @property
    def left_out(self) -> int:
        """How many bad elements were left out or replaced so far."""
        return self.bad.left_out

    @property
    def known(self) -> KnownBad:
        """What `Options.bad_records` lists."""
        return self.bad.known

    def policy(self) -> ErrorPolicy:
        """What becomes of bad elements in a step that gathers elements."""
        return ErrorPolicy(self.settings.on_error, self.leave_out, self.stopped.is_set)

    def leave_out(self, element: Element, verb: Action | None = None, always: bool = False) -> None:
        """Note an element that is skipped or replaced: counted, listed and logged, so that nothing is lost silently.

        Each is noted once, however often its batch is formed. The first ten are logged one by one, then every tenfold.
        What is made again behind a restored state was noted before.

        Args:
            element: a hole with its identity.
            verb: what was done with it; what `on_error` says unless given.
            always: log it, whatever its number.

        Raises:
            TooManyBadError: there are more than `Options.max_bad`.
        """
        verb = verb or ("replaced" if self.settings.on_error == "replace" else "left out")
        count = self.note(element, verb)
        if count and (always or count <= 10 or str(count).strip("0") == "1"):
            logger.warning("%s: %s (%d so far)", verb, element[0].error, count)

    def settle(self, element: Element) -> DataError | None:
        """What becomes of a hole at the end of the chain: the error to raise, None where it is left out or replaced.

        Raises:
            TooManyBadError: there are more than `Options.max_bad`.
        """
        hole, settings = element[0], self.settings
        if hole.error.lost and (hole.ignored or settings.lost_files == "skip"):
            self.leave_out(element, "left out", always=True)
        elif type(hole) is Raised or settings.on_error == "raise":
            self.note(element, "raised")
            error: DataError = hole.error.again()
            return error
        else:
            self.leave_out(element)
        return None

    def lose(self, element: Element) -> None:
        """Note the rest of a file that is left out before any element is asked for; once in each pass."""
        _, stream, _ = element
        if self.counting:
            _say_once(element[0].error)
        elif (self.epoch, stream.key) not in self._lost:
            self._lost.add((self.epoch, stream.key))
            self.leave_out(element, "left out", always=True)

    def note(self, element: Element, verb: Action) -> int:
        """List a bad element; answer how many were left out so far, 0 if this one was noted before."""
        hole = element[0]
        if hole.noted or self.stopped.is_set():  # what a run that ends breaks off is not bad
            return 0
        hole.noted = True
        if SILENT_REPLAY.get():
            return 0
        looking = PEEKING.get()
        if looking is not None and looking.keeps(element, verb):
            return 0
        return self.bad.add(bad_record(element, verb, self.epoch), hole.known)

    def count(self, stage: str) -> Counters:
        """The counters of a stage."""
        return self.counters.setdefault(stage, Counters())

    def abandon(self) -> None:
        """Forget everything without waiting for anybody: in a forked child, where the threads do not exist."""
        # A thread that is not there may have held any lock, and what it worked with waits for it when it is destroyed.
        keep_for_ever(self.stopped, self.limits, self._closers, self._readers, self._remote)
        self._lock = threading.RLock()
        self._closers = {}
        self._readers = self._remote = None
        self.idle.abandon()
        self.stopped = Flag()
        self.stopped.set()
        self.limits = Limits(None, self.stopped)

    def stop(self) -> None:
        """Tell every thread to stop, and wait for none. Safe to call twice."""
        if not self.stopped.is_set():
            self.stopped.set()
        self.limits.close()

    def close(self, wait: bool = True) -> None:
        """Stop every thread and give everything back. Safe to call twice, and from any thread.

        One that is cut short, by Ctrl-C, leaves the rest to the next call.

        Args:
            wait: whether to wait until the threads have ended. The garbage collector may run in one of them, holding
                what another waits for: it only tells them to stop.
        """
        self.stop()
        with self._lock:
            closers = list(self._closers)
            readers = self._readers
        with (
            contextlib.ExitStack() as stack
        ):  # one that fails keeps no other from being called; the last one comes first
            stack.callback(self.idle.close, wait)
            if readers is not None:
                stack.callback(readers.close, wait)
            for closer in closers:
                stack.callback(self._close_one, closer, wait)
        self._readers = None

    def _close_one(self, closer: Callable[[bool], None], wait: bool) -> None:
        closer(wait)
        with self._lock:
            self._closers.pop(closer, None)


TOLD: dict[tuple[str | None, int | None], None] = {}
"""Files of which it was said that a part of them is left out of a count, with the place: `ds[i]` counts each time."""


def _say_once(error: DataError) -> None:
    if (error.file, error.offset) not in TOLD:
        while len(TOLD) >= 1000:
            TOLD.pop(next(iter(TOLD)), None)
        TOLD[error.file, error.offset] = None
        logger.warning("left out of the count: %s", error)


class PeekedErrors:
    """What is bad among elements that are looked at before their pass is asked for.

    Another pass may be asked for instead, which meets them, too: they are noted when this one is handed out.

    Args:
        run: they are noted there.
        most: so many are kept; where there are more, all are noted at once.
    """

    def __init__(self, run: Run, most: int) -> None:
        self._run = run
        self._most = most
        self._kept: list[tuple[Element, Action]] | None = []

    def keeps(self, element: Element, verb: Action) -> bool:
        """Keep a bad element; False if it is to be noted now."""
        if self._kept is not None:
            self._kept.append((element, verb))
            if len(self._kept) <= self._most:
                return True
            self._kept.pop()
            self.tell()
        return False

    def tell(self) -> None:
        """Note those that were kept, and keep none from now on."""
        kept, self._kept = self._kept or [], None
        for element, verb in kept:
            element[0].noted = False
            if verb == "raised":
                self._run.note(element, verb)
            else:
                self._run.leave_out(element, verb)


PEEKING: ContextVar[PeekedErrors | None] = ContextVar("gpupipe_looking", default=None)
"""Where the elements that are asked for now are only looked at: who keeps the bad ones."""


def bad_record(element: Element, action: Action, epoch: int) -> BadRecord:
    """A hole as it is listed: where its error says, with the identity of the element, or of the row of a batch."""
    hole, stream, position = element
    error = hole.error
    if isinstance(stream, BatchStream):
        rows = stream.rows
        of_file = [row for row in rows if row[0].name == error.file] or rows
        stream, position = next((row for row in of_file if row[1] == error.offset), of_file[0])
    file, offset, unit = stream.name, position, stream.unit
    if error.file is not None:
        file, offset, unit = error.file, error.offset, error.unit
    if error.lost:
        unit = "file"
    key = mix64(stream.key, position)
    return BadRecord(file, offset, unit, key, error.stage, error.reason[:REASON], action, epoch)


SILENT_REPLAY: ContextVar[bool] = ContextVar("gpupipe_replaying", default=False)
"""Elements are made again that were delivered before: what they report was reported.

Whoever sets it, or another variable for a while, reads what stands there first, sets it inside of the `try`, and
sets the old value back by one call in the `finally`: Ctrl-C may strike behind every call, so a token may never arrive.
"""
