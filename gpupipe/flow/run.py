"""run: the run of a chain (threads, counters, bad elements) and the contexts in which its steps are opened."""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import field, replace
from typing import Any, Protocol

from ..classes import dataclass
from ..cpus import cpu_count
from ..errors import BadRecord, DataError, StateError, Unit
from ..extract.storage.forking import keep_forever, renew_lock
from ..extract.storage.waiting import LIMITS, Limits
from ..log import logger
from ..options import Settings
from ..random import ROOT, hash64, mix64, pass_number, place_key, step_seed
from ..threads import DaemonPool, Flag
from ..transform.program import Feed
from ..urls import without_secrets
from .bad.found import PEEKING, inner_scope
from .bad.policy import ErrorPolicy
from .bad.records import REASON, Action, BadRecords
from .counters import Counters
from .element import BatchStream, Element, Hole, Raised, Stream, visited
from .idle_workers import IdleWorkers
from .remote_reads import REMOTE, RemoteReads
from .step import Running, State
from .tuning import Tuner

__all__ = ["PEEKING", "SILENT_REPLAY", "Context", "Executors", "Flow", "PeekedErrors", "Run"]


class Flow(Protocol):
    """A step of a running chain, before it runs."""

    def open(self, at: Context, state: State = None) -> Running:
        """Start a pass, or resume one from a snapshot."""
        ...


class Executors(Protocol):
    """Executors for all stages of a run, lent to any number of threads.

    Attributes:
        capacity: the largest batch in rows.
    """

    capacity: int

    def run(self, stage: Any, feed: Feed) -> list[Any]:
        """Compute a batch of a stage; raises what `Executor.collect` raises."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """The place in a chain where a source is opened; keys derive from it, top-down (`random.place_key`).

    Attributes:
        run: the run it belongs to.
        epoch: number of the iterator.
        key: hash of `outer`, `branch`, `passes` and `zipped`.
        alike: the key without `zipped`, so it is equal in all inputs of a zip.
        outer: key of the outer element.
        outer_alike: key of the outer element without the inputs of zips.
        branch: number of the input of a concatenation or mixture.
        passes: number of the pass.
        zipped: hash of the inputs of zips.
        mixtures: number of nested mixtures around it.
        params: the columns of the outer elements of `interleave` and `flat_map`, the innermost last.
        places: the step for whose places elements are made as they come (`flow.order.asked`), if they are.
        since: how many bad elements had been found in the epoch, at most, when anything was first read here.
        scope: the cache whose input this is in, by the place where the cache is opened; 0 for none.
        drawn: the place whose keys its elements have, where an index comes again (`in_visit`); None: this one.
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
    places: Any = None
    since: int = 0
    scope: int = 0
    drawn: Context | None = None

    def in_pass(self, index: int, count: int) -> Context:
        """The context of pass `index` of `count`; a negative count has no end."""
        passes = pass_number(self.passes, index, count)
        drawn = self.drawn and self.drawn.in_pass(index, count)
        if passes == self.passes and drawn is self.drawn:
            return self
        return self._at(drawn, passes=passes, since=self.run.found)

    def in_branch(self, first: int) -> Context:
        """The context of an input of a concatenation, after `first` other branches."""
        drawn = self.drawn and self.drawn.in_branch(first)
        return self if first == 0 else self._at(drawn, branch=self.branch + first)

    def in_mixture(self, first: int) -> Context:
        """The context of an input of a mixture, after `first` other branches."""
        drawn = self.drawn and self.drawn.in_mixture(first)
        return self._at(drawn, branch=self.branch + first, mixtures=self.mixtures + 1)

    def in_zip(self, number: int, index: int) -> Context:
        """The context of input `index` of the zip with this number; that of input 0 is this one."""
        drawn = self.drawn and self.drawn.in_zip(number, index)
        return self if index == 0 else self._at(drawn, zipped=mix64(mix64(self.zipped, number), index))

    def in_visit(self, number: int) -> Context:
        """The context for an index that comes again: the same elements, with the keys of pass `number` of a repeat.

        Steps that choose elements (a full shuffle, a mixture) choose as on the first visit.
        """
        drawn = self.drawing.in_pass(number, -1)
        return self if drawn is self.drawing else replace(self, drawn=drawn)

    @property
    def drawing(self) -> Context:
        """The place whose keys the elements have."""
        return self.drawn or self

    def _at(self, drawn: Context | None, **numbers: Any) -> Context:
        at = replace(self, drawn=drawn, **numbers)
        key = place_key(at.outer, at.branch, at.passes, at.zipped)
        return replace(at, key=key, alike=place_key(at.outer_alike, at.branch, at.passes))

    # The next two are called for every outer element: `replace` would cost as much as all the rest.

    def inside(self, stream: Stream, position: int) -> Context:
        """The context of a dataset made from the element at this position."""
        if self.drawn is not None:
            first = replace(self, drawn=None).inside(stream.first or stream, position)
            return replace(first, drawn=self.drawn.inside(stream, position))
        key = mix64(stream.key, position)
        alike = key if stream.alike == stream.key else mix64(stream.alike, position)
        since = self.run.found
        return Context(self.run, self.epoch, key, alike, key, alike, 0, 0, 0, 0, self.params, None, since, self.scope)

    def with_param(self, columns: Any) -> Context:
        """The context of a function's traced plan, applied to these columns."""
        numbers = (self.branch, self.passes, self.zipped, self.mixtures)
        keys = (self.key, self.alike, self.outer, self.outer_alike)
        params = (*self.params, columns)
        return Context(self.run, self.epoch, *keys, *numbers, params, self.places, self.since, self.scope, self.drawn)

    def neutral(self) -> Context:
        """The context of a cache's input: cached elements depend on the seed and on identity only."""
        return Context(self.run, places=self.places, since=self.since, scope=self.inner_scope)

    @property
    def inner_scope(self) -> int:
        """The scope of the input of a cache that is opened here."""
        return inner_scope(self.scope, self.drawing.key)

    def for_places(self, places: Any) -> Context:
        """The same context for steps that make elements for the places of a step; None: for some that are known."""
        return self if places is self.places else replace(self, places=places)

    def stream(self, kind: str, name: str, unit: Unit = "index") -> Stream:
        """The stream of a source that is opened here.

        Args:
            kind: of source, so that two in one context differ.
            name: for messages.
            unit: of positions.
        """
        mixed = hash64(kind)
        return self.keyed(lambda key: mix64(key, mixed), name, unit)

    def keyed(
        self, key_in: Callable[[int], int], name: str, unit: Unit = "index", kind: type[Stream] = Stream
    ) -> Stream:
        """The stream of a source that is opened here.

        Args:
            key_in: its key, by that of a place.
            name: for messages.
            unit: of positions.
            kind: of stream.
        """
        at = self.drawn or self
        key = key_in(at.key)
        made = kind(key, name, unit, key if at.alike == at.key else key_in(at.alike), self.scope)
        return made if at is self else visited(made, replace(self, drawn=None).keyed(key_in, name, unit, kind))

    def draws(self, seed: int | None, rerandomize: bool) -> tuple[int, int, int]:
        """Seed, epoch and key of the draws of a step that is opened here.

        Args:
            seed: of the step. If one is given, the draws are equal in all inputs of a zip.
            rerandomize: whether draws differ between epochs, passes and branches; else only between outer elements.
        """
        here, outer = (self.key, self.outer) if seed is None else (self.alike, self.outer_alike)
        epoch, key = (self.epoch, here) if rerandomize else (0, outer)
        return step_seed(self.run.settings.seed, seed), epoch, key


@dataclass(eq=False)
class Run:
    """Everything that lives as long as one iterator: settings, the stop flag, threads and what to close.

    Attributes:
        counters: what its steps have done so far.
        tuner: chooses the numbers of its steps with AUTOTUNE.
        idle: where worker processes wait for the next pass, if they end with the run.
        epoch: the present epoch, for reports.
        bad: the bad elements so far.
        remote: reads its remote files.
        limits: time limit and stop flag of its reads, set in each of its threads (`LIMITS`).
        any_order: whether a step gives what is ready first and the chain still has a state: no element is read again.
        stateless: why the chain has no state, if it has none.
        asked: its running steps whose places come while they run, see `flow.order.asked`.
        ranked: whether other ranks make as many steps, by `by_rank`.
        counting: whether only the number of elements is wanted.
        from_start: whether elements are made from the start of the epoch, and not from the position of a state.
        on_gpu: by delivered column, whether its arrays are on the GPU, where only the first of them tells.
        executors: computes the images of its stages on the threads that ask for elements; None if each stage has
            threads and an executor of its own.
    """

    settings: Settings
    stopped: Flag = field(default_factory=Flag)
    counters: Counters = field(default_factory=Counters)
    epoch: int = 0
    tuner: Tuner = field(init=False)
    bad: BadRecords = field(init=False)
    limits: Limits = field(init=False)
    remote: RemoteReads = field(init=False)
    idle: IdleWorkers = field(default_factory=IdleWorkers)
    any_order: bool = False
    stateless: str | None = None
    asked: list[Any] = field(default_factory=list)
    ranked: bool = False
    counting: bool = False
    from_start: bool = True
    on_gpu: dict[int, bool] = field(default_factory=dict)
    executors: Executors | None = None
    _lost: set[tuple[int, int]] = field(default_factory=set)
    _buffers: weakref.WeakKeyDictionary[Any, str] = field(default_factory=weakref.WeakKeyDictionary)
    _closers: dict[Callable[[bool], None], None] = field(default_factory=dict)
    _closing: bool = False
    _readers: DaemonPool | None = None
    # Reentrant: the garbage collector may close a run in a thread that holds the lock.
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.tuner = Tuner(self.settings)
        self.bad = BadRecords(self.settings)
        self.limits = Limits(self.settings.read_timeout, self.stopped)
        self.limits.found, self.limits.longest = self.bad.found, self.settings.max_record
        self.remote = RemoteReads(self.settings.host_memory, self.counters, self._reads_remote)
        renew_lock(self.bad)

    def is_inside(self) -> bool:
        """Whether this thread works for the run, in `next` or as one of its threads, and so must not wait for it.

        Also true while a function of the chain iterates over another dataset.
        """
        at = LIMITS.get()
        while at is not None and at is not self.limits:
            at = at.outer
        return at is not None

    def makes_again(self, stream: Stream) -> bool:
        """Whether this thread makes an element again that came before a state, an interrupt or the loss of a cache."""
        return SILENT_REPLAY.get() or self.bad.found.makes_again(stream.scope)

    @property
    def found(self) -> int:
        """The number of the first bad element that a state needs which starts here."""
        return self.bad.found.unmet() if SILENT_REPLAY.get() else self.bad.found.count

    @property
    def peeks(self) -> bool:
        """Whether this thread looks at elements before their pass is asked for."""
        return PEEKING.get() is not None

    @property
    def readers(self) -> DaemonPool | None:
        """The thread that reads ahead; None on two CPUs or fewer. A run that was stopped starts none.

        One thread: on cached files it gave 60-69 thousand records/s where four gave 33-51. None on two CPUs: with the
        reader thread a record of 126 KB cost 27 CPU-us at 34 thousand per second, without it 23 at 42 thousand.
        """
        if cpu_count() <= 2:
            return None
        with self._lock:
            if self._readers is None and not self.stopped.on:
                self._readers = DaemonPool(1, "gpupipe-reader", self.counters.step("reader").pool(1))
            return self._readers

    def _reads_remote(self, pool: DaemonPool) -> None:
        self.on_close(pool.close)
        self.track_buffer(self.remote.budget, REMOTE)

    def on_close(self, closer: Callable[[bool], None]) -> None:
        """Call `closer` when the run ends, at once if it has ended. Its argument is whether to wait for threads."""
        with self._lock:
            self._closers[closer] = None
            late = self._closing  # another thread closes the run while a step makes its threads
        if late:
            self._close_one(closer, False)

    def forget(self, closer: Callable[[bool], None]) -> None:
        """Undo `on_close`. A closer calls it last, so that one that is interrupted is called again."""
        with self._lock:
            if not self.stopped.on:  # `close` itself removes the closers that have returned
                self._closers.pop(closer, None)

    def track_buffer(self, buffer: Any, step: str) -> None:
        """Add a buffer of a step to the memory report.

        Its `buffer_usage()` returns the number of elements and their bytes; any thread may call it at any time.
        """
        with self._lock:
            self._buffers[buffer] = step

    def buffer_usage(self) -> dict[str, tuple[int, int]]:
        """Elements and bytes now in all live buffers, by step."""
        with self._lock:
            buffers = list(self._buffers.items())
        found: dict[str, tuple[int, int]] = {}
        for buffer, step in buffers:
            before, now = found.get(step, (0, 0)), buffer.buffer_usage()
            found[step] = before[0] + now[0], before[1] + now[1]
        return found

    def policy(self) -> ErrorPolicy:
        """A policy for the bad elements of a step that gathers elements."""
        return ErrorPolicy(
            self.settings.on_error, self.leave_out, self.stopped.is_set, self.ranked, self.lacks, self.refuse
        )

    def leave_out(
        self, element: Element, verb: Action | None = None, always: bool = False, reported: bool = True
    ) -> None:
        """Count, list and log an element that is left out or replaced.

        Each is noted once, however often its batch is formed; elements that are made again after a restored state were
        noted before. `BadRecords.log` says which are logged.

        Args:
            element: a hole with its identity.
            verb: what was done with it; by default what `on_error` says.
            always: log it, whatever its number.
            reported: as in `note`.

        Raises:
            TooManyBadError: there are more than `Options.max_bad`.
        """
        verb = verb or ("replaced" if self.settings.on_error == "replace" else "left out")
        error = element[0].error
        self.bad.log(verb, error, self.note(element, verb, reported), error.file, error.unit, always)

    def settle(self, element: Element) -> DataError | None:
        """Decide about a hole at the end of the chain: the error to raise, or None if it is left out or replaced.

        Who raises it calls `Found.reported` when it has left the chain: if an interrupt comes first, it is raised then.

        Raises:
            TooManyBadError: there are more than `Options.max_bad`.
        """
        hole, settings = element[0], self.settings
        if hole.error.lost and (hole.ignored or settings.lost_files == "skip"):
            self.leave_out(element, "left out", always=True)
        elif type(hole) is Raised or settings.on_error == "raise":
            self.note(element, "raised", reported=False)
            error: DataError = hole.error.again()
            return error
        else:
            self.leave_out(element)
        return None

    def lose(self, element: Element) -> None:
        """Note the rest of a file that is left out, before any element is asked for; once in each epoch and pass."""
        _, stream, _ = element
        if self.counting:
            _say_once(element[0].error)
        elif (self.epoch, stream.key) not in self._lost:
            self._lost.add((self.epoch, stream.key))
            self.leave_out(element, "left out", always=True)

    def note(self, element: Element, verb: Action, reported: bool = True) -> int:
        """List a bad element; return how many were left out so far, 0 if this one was noted before.

        An interrupt may come after any line: the element is made again then, and listed unless it was.

        Args:
            element: a hole with its identity.
            verb: what is done with it.
            reported: False if `Found.reported` is called later, when the element has left the chain.
        """
        hole = element[0]
        if hole.noted or self.stopped.on:  # a read that is interrupted by the end of the run is not bad
            return 0
        hole.noted = True
        peeking = PEEKING.get()
        if peeking is not None and not SILENT_REPLAY.get() and peeking.keeps(element, verb):
            return 0
        silent = SILENT_REPLAY.get()
        count = 0 if silent else self.bad.add(bad_record(element, verb, self.epoch), hole.known)
        if hole.found is not None and (reported or silent):
            hole.found.reported()
        return count

    def lacks(self, element: Element) -> bool:
        """Whether a bad element was good before a state was taken, and keeps its place among those that are counted.

        Raises:
            StateError: what was lost has no place: its error hides an unknown number of elements. Or it lacked in an
                earlier resume already, of which a state does not say how far it went. With `Options.resume_without`
                it is reported instead.
        """
        hole = element[0]
        if not SILENT_REPLAY.get() or self.stopped.on:
            return False
        if PEEKING.get() is not None and not (self.from_start or element[1].scope):
            return False  # it may be of an earlier pass, of which the state knows nothing
        if hole.found is not None and hole.found.lacks and hole.found.again:  # in an earlier resume of the epoch
            self.refuse(element, "a resume from a state that was taken after another one")
            return False
        if hole.noted or hole.known or not (type(hole) is Hole or hole.error.lost):
            return False
        if not self.bad.found.exact or (hole.found is not None and hole.found.again):
            return False
        if hole.error.lost:
            self.refuse(element, "what follows")
            return False
        if hole.found is not None:
            hole.found.lacks = True
        return True

    def need(self, element: Element, who: str) -> None:
        """Give up a resume where a step needs the value of a bad element that was good before.

        Raises:
            StateError: it was; with `Options.resume_without` it is reported instead.
        """
        if self.lacks(element):
            self.refuse(element, who)

    def refuse(self, element: Element, who: str) -> None:
        """Give up a resume, see `need`."""
        hole = element[0]
        if not self.settings.resume_without:
            raise StateError(
                f"{who} needs an element that was good when the state was taken and fails now, so others would follow: "
                f"{hole.error}; make it readable again, start the epoch again, or continue without it "
                "with Options(resume_without=True)"
            )
        hole.noted = True
        record = bad_record(element, "left out", self.epoch)
        self.bad.log("resumed without", hole.error, self.bad.add(record), record.file, record.unit, always=True)
        if hole.found is not None:
            hole.found.again, hole.found.lacks = True, False
            hole.found.reported()

    def abandon(self) -> None:
        """Forget everything and wait for nothing: in a forked child, where the threads do not exist."""
        # A thread of the parent may have held any lock; destroying these objects here would wait for it forever.
        keep_forever(self.stopped, self.limits, self._closers, self._readers, self.remote)
        self._lock = threading.RLock()
        self._closers = {}
        self._readers = None
        self.remote = RemoteReads(self.settings.host_memory, self.counters, self._reads_remote)
        self.idle.abandon()
        self.stopped = Flag()
        self.stopped.set()
        self.limits = Limits(None, self.stopped)

    def stop(self) -> None:
        """Tell every thread to stop, without waiting. Safe to call twice."""
        if not self.stopped.is_set():  # not `on`: an earlier call may have been interrupted
            self.stopped.set()
        self.limits.close()

    def close(self, wait: bool = True) -> None:
        """Stop every thread and release everything. Safe to call twice, and from any thread.

        If it is interrupted, by Ctrl-C, the next call does the rest.

        Args:
            wait: whether to wait until the threads have ended. The garbage collector does not wait: it may run in one
                of them while that holds a lock another one needs.
        """
        self.stop()
        self.tuner.tell_unknown()
        with self._lock:
            closers, self._closing = list(self._closers), True
            readers = self._readers
        with contextlib.ExitStack() as stack:  # all are called, even if one fails; the last one first
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
"""Files and offsets whose loss was logged while counting: `ds[i]` counts each time, and logs it once."""


def _say_once(error: DataError) -> None:
    if (error.file, error.offset) not in TOLD:
        while len(TOLD) >= 1000:
            TOLD.pop(next(iter(TOLD)), None)
        TOLD[error.file, error.offset] = None
        logger.warning("left out of the count: %s", error)


class PeekedErrors:
    """The bad elements among those that are peeked at before their pass is asked for.

    They are noted when that pass is opened: another pass may be opened instead, which meets them, too.

    Args:
        run: where they are noted.
        most: how many are kept; if there are more, all are noted at once.

    Attributes:
        found: what steps found bad meanwhile, with its places.
    """

    def __init__(self, run: Run, most: int) -> None:
        self._run = run
        self._most = most
        self._kept: list[tuple[Element, Action]] | None = []
        self._told: list[Element] = []
        self.found: list[Any] = []

    def keeps(self, element: Element, verb: Action) -> bool:
        """Keep a bad element; return False if it is to be noted now."""
        if self._kept is not None:
            self._kept.append((element, verb))
            if len(self._kept) <= self._most:
                return True
            self._kept.pop()
            self.tell()
        return False

    def tell(self) -> None:
        """Note the kept elements, and keep none from now on."""
        kept, self._kept = self._kept or [], None
        for element, verb in kept:
            element[0].noted = False
            self._told.append(element)
            if verb == "raised":
                self._run.note(element, verb, reported=False)
            else:
                self._run.leave_out(element, verb, reported=False)

    def forget(self) -> None:
        """Forget what was found: the pass is not the one that is asked for, and its elements are read again."""
        self._run.bad.found.forget(self.found)
        self.found.clear()

    def passed(self) -> None:
        """Note that the pass has given what was peeked at: until then a resume makes it again as it was."""
        told, self._told = self._told, []
        for element in told:
            if element[0].found is not None:
                element[0].found.reported()


def bad_record(element: Element, action: Action, epoch: int) -> BadRecord:
    """The bad record of a hole: located where its error says, with the key of the element or of the row of a batch."""
    hole = element[0]
    stream, position = hole.batch or element[1:]
    error = hole.error
    if isinstance(stream, BatchStream):
        rows = stream.rows
        of_file = [row for row in rows if without_secrets(row[0].name) == error.file] or rows
        stream, position = next((row for row in of_file if row[1] == error.offset), of_file[0])
    file, offset, unit = without_secrets(stream.name), position, stream.unit
    if error.file is not None:
        file, offset, unit = error.file, error.offset, error.unit
    if error.lost:
        unit = "file"
    key = mix64(stream.key, position)
    reason = sys.intern(error.reason[:REASON])  # thousands are kept, and most have one of a few reasons
    return BadRecord(file, offset, unit, key, error.stage, reason, action, epoch)


SILENT_REPLAY: ContextVar[bool] = ContextVar("gpupipe_replaying", default=False)
"""Whether elements that were delivered before are made again: their errors were reported then.

To set this or another context variable for a while, read the old value first, set the new one inside the `try`, and
restore the old one by a single call in the `finally`: Ctrl-C may strike after any call, so a token may never arrive.
"""
