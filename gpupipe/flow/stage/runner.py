"""runner: the threads of a transform stage: groups of elements go through a graph, as batches or as elements again.

There are two threads and a channel. The feeder runs the input, forms groups and draws their parameters; the runner
owns the executor: it submits groups as they come (two are in flight) and delivers the oldest. A group that
fails is repaired: the bad rows are found by halving in the same executor and become holes; under batching every other
element, later groups included, is put back into the batcher, before the rest of the input. So the batches are those of
a stream whose holes were known from the start.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from time import perf_counter, thread_time
from typing import Any

from ...errors import DataError, DecodeError, DeviceError
from ...extract.images.decode import MOST_PIXELS
from ...extract.storage.waiting import LIMITS
from ...graph.host_values import HostValues
from ...graph.values import Apply
from ...threads import Room, Thread, join
from ...timing import TRACKER, Meter, Section
from ...transform.array import nvtx
from ...transform.program import BatchFailed, Executor, Feed, WrongPixels
from ..bad.found import bad_element
from ..batching.batcher import Batcher, Group, batch_of_holes
from ..batching.resumable import ResumableBatcher
from ..element import Element, Hole, Raised, locate
from ..prefetch.channel import Channel, Closed
from ..run import SILENT_REPLAY, Context
from ..step import close
from .assemble import Assembler, Stage, failed_batch
from .job import Delivered, Job, Queued, runs_alone
from .repair import host_copy, in_spite_of, joined, make_holes, split

__all__ = ["IN_FLIGHT", "StageRunner"]

IN_FLIGHT = 2
"""Groups in the executor at a time. More gave no throughput on the CPU and cost memory."""


WAITING = 1
"""Groups that wait for the executor. Two gave 3 % fewer images/s on two CPUs: data that is read longer before it is
decoded has left the CPU's cache by then."""


class StageRunner:
    """The two threads of a stage. They know the run and the channel, never the iterator that the user holds."""

    def __init__(self, flow: Stage, at: Context, resumable: ResumableBatcher, out: Channel[Delivered]) -> None:
        assert flow.program is not None and flow.executor is not None
        self._flow = flow
        self._program = flow.program
        self._decoders = [value for value in flow.program.values if isinstance(value, Apply) and value.op.decodes]
        self._make_executor, self._load = flow.executor, flow.load
        self._executor: Executor | None = None
        self._resumable = resumable
        self._batcher = resumable.batcher
        self._source = resumable.source
        self._out = out
        self._assembler = Assembler(flow, at)
        self._run = at.run
        self._settings = at.run.settings
        where = flow.where
        self._feeds = at.run.counters.step(f"{where.step}, host values", where.line)
        self._runs = at.run.counters.step(where.step, where.line)
        self._feeding = Section(Meter(f"{where.step}, host values", where.line, "host"))
        self._running = Section(Meter(where.step, where.line, "executor"))
        self._submitted: deque[float] = deque()  # when each batch in the executor was submitted
        self._tracker = TRACKER.get()
        self._lock = threading.Lock()  # guards the batcher
        self._changed = Room()
        self._jobs: deque[Queued] = deque()
        self._finished = False
        # Groups that a consumer has asked for who makes elements again, one at a time; None if the threads run ahead.
        self._wanted: int | None = None
        self._stopped = False
        self._failure: BaseException | None = None
        # The last good element that was delivered; after a resume, that of the groups formed again.
        self._last: Any = self._batcher.last if isinstance(self._batcher, Batcher) else None
        self._capacity = 0  # rows that the executor takes at a time: the size, or more if the first group has more
        self._threads = [
            Thread(self._feed, name=f"gpupipe-flow-{flow.label}"),
            Thread(self._execute, name=f"gpupipe-transform-{flow.label}"),
        ]

    def hold(self, again: bool) -> None:
        """Make no group that is not asked for, if elements are made again that were delivered before."""
        self._wanted = 0 if again else None

    def ask(self, again: bool) -> None:
        """Ask for another group; from the first one on that is not made again, the threads run ahead."""
        if self._wanted is not None:
            with self._changed:
                self._wanted = self._wanted + 1 if again else None
                self._changed.notify_all()

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    @property
    def started(self) -> bool:
        """Whether the feeder was started, which closes the input."""
        return self._threads[0].ident is not None

    def stop(self, wait: bool = True) -> None:
        """Stop the threads and wait for them; the feeder closes their input."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if wait:
            join(self._threads)

    # ---- feeder

    def _feed(self) -> None:
        MOST_PIXELS.set(self._settings.max_pixels)
        LIMITS.set(self._run.limits)
        cpu = thread_time()
        try:
            while self._wait_for_room():
                started = perf_counter()
                SILENT_REPLAY.set(self._wanted is not None)
                with self._lock, self._feeding:
                    before = self._resumable.checkpoint()
                    item = self._resumable.next()
                    job = self._prepare(item) if isinstance(item, Group) else item
                    with self._changed:
                        if job is None:
                            self._finished = True
                        else:
                            self._jobs.append(Queued(job, before, self._resumable.checkpoint()))
                        self._changed.notify_all()
                self._feeds.elements += len(job.group.rows) if isinstance(job, Job) else 0
                self._feeds.busy += perf_counter() - started
                cpu, before_cpu = thread_time(), cpu
                self._feeds.cpu += cpu - before_cpu
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._finished = True
                self._changed.notify_all()
        finally:
            close(self._source)

    def _wait_for_room(self) -> bool:
        """Wait until a group is needed; False once stopped or failed. At the end of the input, wait for a repair."""
        started = perf_counter()
        with self._changed:
            while not self._stopped and self._failure is None and self._has_enough():
                self._changed.wait()
            if self._wanted is not None:
                self._wanted -= 1
            self._feeds.blocked += perf_counter() - started
            return not self._stopped and self._failure is None

    def _has_enough(self) -> bool:
        return len(self._jobs) >= WAITING or self._finished or self._wanted == 0

    def _prepare(self, group: Group) -> Job:
        """Compute the graph's inputs, without touching the executor."""
        while True:
            values = self._assembler.values(group.rows)
            try:
                if group.order is None:
                    self._assembler.check_shapes(values, group.rows)
                self._assembler.compute(values)
                feed = Feed.of(self._program, values, self._settings.verify) if group.rows else None
                feeds = [] if feed is None else self._split(feed, values)
                return Job(group, values, feeds)
            except DataError as error:
                bad = {row: error.of_row(row) for row in error.rows}
                if not bad or group.order is None:
                    return Job(group, values, [], error, bad)
                make_holes(group, {row: self._hole(group.rows[row], error) for row, error in bad.items()})

    def _split(self, feed: Feed, values: HostValues) -> list[Feed]:
        """Split a batch that exceeds the executor's capacity, or whose images would exceed the device budget."""
        self._capacity = self._capacity or max(self._flow.size, feed.size)
        memory, shared = self._settings.device_memory, self._flow.shares_memory
        return split(feed, values, self._decoders, self._capacity, memory, shared)

    # ---- runner

    def _execute(self) -> None:
        LIMITS.set(self._run.limits)
        flight: deque[Queued] = deque()
        cpu = thread_time()
        try:
            if self._load is not None:
                self._load()
            while True:
                # A batch that runs alone, maybe in parts, is submitted when those before it are delivered.
                alone = bool(flight) and runs_alone(flight[-1].item)
                queued = None if alone else self._take(wait=not flight)
                if queued is not None:
                    job = queued.item
                    if isinstance(job, Job) and job.feeds and not runs_alone(job):
                        self._submit(job.feeds[0])
                    flight.append(queued)
                    if len(flight) < IN_FLIGHT and not runs_alone(job):
                        continue
                if not flight:
                    break
                self._deliver(flight.popleft(), flight)
                cpu, before = thread_time(), cpu
                self._runs.cpu += cpu - before
            self._out.finish()
        except Closed:
            pass
        except BaseException as error:
            self._out.fail(error)
        finally:
            with self._changed:
                self._stopped = True
                self._changed.notify_all()
            executor, self._executor = self._executor, None
            if executor is not None:
                executor.close()

    def _submit(self, feed: Feed) -> None:
        """Start a batch, in an executor that is made for the first one."""
        started = perf_counter()
        if self._executor is None:
            self._executor = self._make_executor(self._program, self._capacity)
            self._executor.one_by_one = self._settings.on_error != "raise"
            self._runs.work, self._runs.workers = self._executor.busy, len(self._executor.busy)
            if self._executor.on_gpu:
                self._feeding.ranges = self._running.ranges = nvtx()
        with self._running:
            self._executor.submit(feed)
        self._submitted.append(started)
        self._runs.busy += perf_counter() - started

    def _take(self, wait: bool) -> Queued | None:
        """Take the next job. None at the end of the input, or without `wait` if no job is there."""
        started = perf_counter()
        with self._changed:
            while True:
                if self._stopped:
                    raise Closed
                if self._jobs:
                    job = self._jobs.popleft()
                    self._changed.notify_all()
                    self._runs.waiting += perf_counter() - started
                    return job
                if self._failure is not None and wait:
                    raise self._failure
                if not wait or self._finished:
                    return None
                self._changed.wait()

    def _deliver(self, queued: Queued, flight: deque[Queued]) -> None:
        job = queued.item
        if not isinstance(job, Job):
            self._out.put(Delivered([job], queued.before, queued.after))
            return
        if job.bad:
            self._repair(queued, job, BatchFailed("", job.bad), flight)
            return
        if job.error is not None:
            self._out.put(Delivered([failed_batch(job.group, job.error)], queued.before, queued.after))
            return
        try:
            results = self._collect(job)
        except BatchFailed as failure:
            self._repair(queued, job, failure, flight)
            return
        elements = self._assembler.deliver(job.group, job.values, results)
        if job.group.rows:
            self._last = job.group.rows[-1][0]
        size = sum(getattr(leaf, "nbytes", 0) for value, _, _ in elements if type(value) is tuple for leaf in value)
        self._runs.elements += len(job.group.rows)
        self._runs.bytes += size
        self._out.put(Delivered(elements, queued.before, queued.after), size)

    def _collect(self, job: Job) -> list[Any]:
        """Collect the results of a job. All its parts run even if one fails, so that every bad row is known."""
        parts: list[list[Any]] = []
        causes: dict[int, DataError] = {}
        text, start = None, 0
        for feed in job.feeds:
            try:
                if runs_alone(job):
                    self._submit(feed)
                results = self._answer(job.group.rows[start : start + feed.size])
                parts.append([host_copy(result) for result in results] if self._flow.to_host else results)
            except BatchFailed as failure:
                text = text or failure.text
                causes.update({start + row: error for row, error in failure.causes.items()})
            start += feed.size
        if text is not None:
            raise BatchFailed(text, causes)
        if len(parts) <= 1:
            return parts[0] if parts else []
        return [joined(column) for column in zip(*parts, strict=True)]

    def _answer(self, rows: Sequence[Element], delivered: bool = True) -> list[Any]:
        """Return the results of the oldest batch in flight.

        Args:
            rows: its elements.
            delivered: whether the results are delivered; wrong pixels that are discarded need no warning.

        Raises:
            BatchFailed: some rows are bad.
            PixelError: some rows were decoded wrongly, and `Options.wrong_pixels` is "raise".
        """
        assert self._executor is not None
        started = perf_counter()
        try:
            with self._running:
                return self._executor.collect(delivered)
        except WrongPixels as found:
            return in_spite_of(found, rows, self._settings, delivered)
        finally:
            now = perf_counter()
            self._runs.busy += now - started
            submitted = self._submitted.popleft()
            if self._tracker is not None:
                self._tracker.flights.append((self._flow.where.step, submitted, started, now))

    def _repair(self, queued: Queued, job: Job, failure: BatchFailed, flight: deque[Queued]) -> None:
        """Find the bad rows of a failed group, make them holes, and put back all elements that were not delivered."""
        SILENT_REPLAY.set(self._wanted is not None)
        others = {id(other): causes for other in flight if (causes := self._dropped(other))}
        later = list(flight)
        flight.clear()
        bad = failure.causes or self._find(job)
        if not bad:  # the batch failed once and then ran, so no row is to blame
            assert self._executor is not None
            raise DeviceError(
                f"{self._executor.label} failed once and ran on the same batch again, so it is not the data: "
                f"{failure.text}; start the process again, or run with Options(device='cpu')"
            )
        if not self._batcher.regroups:  # without the lock: the feeder may wait long for an element, and holds it
            again = self._without(job.group, bad)
            last = len(again) - 1
            parts = [Queued(item, queued.before, queued.after if i == last else None) for i, item in enumerate(again)]
            with self._changed:
                self._jobs.extendleft(reversed([*parts, *later]))
                self._changed.notify_all()
            return
        with self._lock, self._changed:
            assert isinstance(self._batcher, Batcher)
            waiting = [other.item for other in later] + [other.item for other in self._jobs]
            known = [(job, bad), *((one.item, others[id(one)]) for one in later if id(one) in others)]
            back, found = self._returned(job, known, waiting, self._batcher.take_back())
            self._jobs.clear()
            self._batcher.put_back(back, self._last)
            self._resumable.rewind(queued.before, found)
            self._finished = False
            if self._wanted is not None:
                self._wanted += 1
            self._changed.notify_all()

    def _returned(
        self,
        job: Job,
        known: Sequence[tuple[Any, dict[int, DataError]]],
        later: Sequence[Job | Element],
        rest: Sequence[Element],
    ) -> tuple[list[Element], list[tuple[Element, DataError]]]:
        """Return the elements to put back, and which of them were found to be bad.

        Returns:
            All elements that were not delivered, as they came from the input, with the bad ones as holes; the bad
            elements with their errors.
        """
        jobs = [job, *(other for other in later if isinstance(other, Job))]
        waiting = {id(other) for other in later}
        taken = [element for other in jobs for element in other.group.taken] + list(rest)
        # The contents of a row are bad: a replacement has its own hole already, its contents come from another element.
        causes = {id(one.group.rows[i][0]): error for one, bad in known for i, error in bad.items()}
        back: list[Element] = []
        found: list[tuple[Element, DataError]] = []
        for element in taken:
            value, stream, position = element
            if type(value) is tuple:
                error = causes.get(id(value))
                if error is None:
                    back.append(element)
                    continue
                blamed = self._blamed(element, error)
                found.append((element, blamed))
                back.append(bad_element(blamed, stream, position, self._flow))
            elif type(value) is Hole or id(element) in waiting:  # other errors were delivered already
                back.append(element)
        return back, found

    def _without(self, group: Group, bad: dict[int, DataError]) -> list[Job | Element]:
        """Prepare a group that is not formed again to run without its bad rows."""
        if group.order is not None:
            make_holes(group, {row: self._hole(group.rows[row], error) for row, error in bad.items()})
            return [self._prepare(group)]
        # The rows of a batch that the user made, or that is zipped with something: later elements must not fill it up.
        rows = group.rows
        if group.whole is None or self._flow.aligned:
            first = min(bad)
            return [batch_of_holes(rows, self._hole(rows[first], bad[first])[0])]
        holes = {i: self._hole(rows[i], error) for i, error in bad.items()}
        lacking = next((hole for hole in holes.values() if self._run.lacks(hole)), None)
        if lacking is not None:
            return [(lacking[0], *group.whole[1:])]
        policy = self._run.policy()
        again: list[Element] = []
        for i, row in enumerate(rows):
            again += policy.bad(holes[i]) if i in holes else policy.good(row)
        group.rows = [element for element in again if type(element[0]) is tuple]
        errors: list[Job | Element] = [element for element in again if type(element[0]) is Raised]
        return [*errors, self._prepare(group)] if group.rows else errors

    def _dropped(self, queued: Queued) -> dict[int, DataError]:
        """Discard the results of a job in flight, which has to run again; return the rows that are known to be bad.

        Where errors are raised, what is in flight does not change their order: after a resume nothing is in flight.
        """
        job = queued.item
        if isinstance(job, Job) and job.feeds and not runs_alone(job):  # else it was not submitted
            try:
                self._answer(job.group.rows, delivered=False)
            except BatchFailed as failure:  # without causes it fails again when it runs again
                return failure.causes if self._settings.on_error != "raise" else {}
        return {}

    def _find(self, job: Job) -> dict[int, DataError]:
        """Find the bad rows by halving in the same executor; nothing else is in flight."""
        feed, rows = Feed.of(self._program, job.values), job.group.rows
        found: dict[int, DataError] = {}
        feed = replace(feed, large=sum((part.large or (0,) * part.size for part in job.feeds), ()))
        ends = list(accumulate(part.size for part in job.feeds))
        spans = list(zip([0, *ends], ends, strict=False))[::-1]
        while spans:
            low, high = spans.pop()
            self._submit(feed.part(low, high))
            try:
                self._answer(rows[low:high], delivered=False)
            except BatchFailed as failure:
                if high - low == 1:
                    found[low] = failure.causes.get(0) or DecodeError(failure.text)
                else:
                    middle = (low + high) // 2
                    spans += [(middle, high), (low, middle)]
        return found

    def _hole(self, row: Element, error: DataError) -> Element:
        return bad_element(self._blamed(row, error), *row[1:], self._flow)

    def _blamed(self, row: Element, error: DataError) -> DataError:
        return locate(error, row[1], row[2], self._decoders[0].op.stage if self._decoders else "transform")
