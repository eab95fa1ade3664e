"""numpy: the executor that runs a program's references row by row on a pool of threads. Needs no DALI.

The slow parts (decoders, resizing, array arithmetic) release the GIL. So a row is one short list of calls on one
thread, with its intermediate images in that core's cache, and a batch is a few chunks of rows. A program is compiled
once; running a row looks up no dictionary, graph or type.

An op's `reference` may take the optional keyword `out`, an array of the result's shape and dtype to write to: a row of
the batch, so nothing is copied afterwards.

The executor "fast" is this one with the `fast` of the ops that have it.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from contextvars import copy_context
from operator import itemgetter
from typing import Any

import numpy as np

from ..classes import dataclass
from ..errors import DataError, DecodeError, FunctionError, MissingDependencyError, PlanError, text_of
from ..extract.images.budget import Kept
from ..extract.images.decode import MOST_PIXELS
from ..graph.op import Array
from ..graph.values import Apply, Const, Item, Value
from ..threads import DaemonPool
from .buffers import Buffers
from .made import Made
from .program import BatchFailed, Executor, Feed, Program
from .whole import Whole, static_shape

__all__ = ["NumpyExecutor", "can_compute"]

CHUNKS_PER_THREAD = 2
"""Chunks of a batch per thread: few, since each has an overhead, but more than one, since rows differ in cost."""

Step = Callable[[list[Any]], None]


@dataclass(frozen=True, slots=True)
class _Output:
    """The slots of an output, and its static shape and dtype.

    Attributes:
        slot: slot of the result.
        target: slot of the row of the batch array, for an op that writes there itself.
        shape: of a row; None if it varies.
        dtype: of a row; None if unknown.
    """

    slot: int
    target: int | None
    shape: tuple[int, ...] | None
    dtype: Any


class _Code:
    """A program as a list of calls on one list of slots: inputs first, then values, then targets."""

    def __init__(self, program: Program, fast: bool) -> None:
        self.constants = [(n, v.value) for n, v in enumerate(program.inputs) if isinstance(v, Const)]
        self.columns = [n for n, v in enumerate(program.inputs) if not isinstance(v, Const)]
        slots: dict[Value, int] = {v: n for n, v in enumerate((*program.inputs, *program.values))}
        self.slots = len(slots)
        self.inputs = len(program.inputs)
        self.outputs: list[_Output] = []
        self.targets: list[tuple[int, int]] = []  # (number of the output, slot)
        targets: dict[Value, int] = {}
        for n, value in enumerate(program.outputs):
            shape = static_shape(value)
            if shape is not None:
                targets[value] = self.slots
                self.targets.append((n, self.slots))
                self.slots += 1
            self.outputs.append(_Output(slots[value], targets.get(value), shape, value.spec.dtype))
        self.steps: list[tuple[Step, str]] = []
        for value in program.values:
            self.steps.append(_step(value, slots, targets.get(value), fast))


def _step(value: Value, slots: dict[Value, int], target: int | None, fast: bool) -> tuple[Step, str]:
    """The call that computes one value, and the name of its step in errors."""
    slot = slots[value]
    if isinstance(value, Item):
        source, index = slots[value.value], value.index

        def pick(s: list[Any]) -> None:
            s[slot] = s[source][index]

        return pick, "item"
    if not isinstance(value, Apply):
        raise TypeError(f"{value!r} is not an image value")
    if not value.op.supports("reference"):
        raise PlanError(f"{value.op.name} has no NumPy form; run it with Options(backend='dali')")
    function: Callable[..., Any] = value.op.fast if fast and value.op.supports("fast") else value.op.reference
    keywords = inspect.signature(function).parameters
    arguments = [slots[v] for v in value.inputs]
    return _call(function, arguments, slot, target if "out" in keywords else None), value.op.stage


def _call(function: Callable[..., Any], arguments: list[int], slot: int, target: int | None) -> Step:
    """``s[slot] = function(*arguments)`` as a closure, specialised by the number of arguments."""
    if target is not None:

        def call_into(s: list[Any]) -> None:
            s[slot] = function(*[s[n] for n in arguments], out=s[target])

        return call_into
    if len(arguments) == 1:
        (only,) = arguments

        def call_one(s: list[Any]) -> None:
            s[slot] = function(s[only])

        return call_one
    if not arguments:

        def call_none(s: list[Any]) -> None:
            s[slot] = function()

        return call_none
    get = itemgetter(*arguments)

    def call_many(s: list[Any]) -> None:
        s[slot] = function(*get(s))

    return call_many


@dataclass(frozen=True, slots=True)
class _Flight:
    """A batch in flight: one entry per output in `results`, an array[B,...] or a list of B rows."""

    feed: Feed
    results: list[Any]
    causes: dict[int, DataError]
    futures: list[Future[None]]


class NumpyExecutor(Executor):
    """Runs a program's references on the CPU.

    Args:
        program: what to compute.
        batch_size: the largest batch that will be submitted.
        threads: number of threads.
        fast: whether to use the libraries of the extra `fast`.
    """

    shared = True

    def __init__(self, program: Program, batch_size: int, threads: int, fast: bool = False) -> None:
        super().__init__("fast libraries on CPU" if fast else "NumPy on CPU", batch_size)
        self._threads = threads
        self._buffers = Buffers()
        self._code = _Code(program, fast)
        self._made = Made()
        self._whole = Whole.of(program)
        self._pool = DaemonPool(threads, "gpupipe-numpy")
        self.busy = self._pool.busy
        self._leave = _one_thread() if fast else None

    def run(self, feed: Feed) -> list[Any]:
        """Compute one batch, alone or beside others; a single row on the calling thread."""
        self._check_open()
        if feed.size > 1:
            return self._finish(self._start(feed))
        flight = self._flight(feed)
        copy_context().run(self._chunk, feed, flight, 0, 1)
        return self._finish(flight)

    def collect(self, delivered: bool = True) -> list[Any]:
        """Wait for the oldest batch in flight, see `Executor.collect`; rows that are not delivered are not lost."""
        flight = self._flights[0] if self._flights else None
        try:
            results = Executor.collect(self, delivered)
        except BatchFailed:
            delivered = False
            raise
        finally:
            if flight is not None and not delivered:
                self._made.keep(flight.feed, flight.results, flight.causes)
        if delivered and self._made:
            self._made.delivered()
        return results

    def _flight(self, feed: Feed) -> _Flight:
        results = [
            [None] * feed.size
            if output.shape is None
            else self._buffers.empty((feed.size, *output.shape), output.dtype)
            for output in self._code.outputs
        ]
        return _Flight(feed, results, {}, [])

    def _start(self, feed: Feed) -> _Flight:
        """Submit a batch to the threads in chunks."""
        flight = self._flight(feed)
        rows = -(-feed.size // (self._threads * CHUNKS_PER_THREAD))
        if self._whole is not None:
            rows = self._whole.per_chunk(feed.size, rows)
        for start in range(0, feed.size, rows):
            stop = min(start + rows, feed.size)
            flight.futures.append(self._pool.submit(self._chunk, feed, flight, start, stop))
        return flight

    def _finish(self, flight: _Flight) -> list[Any]:
        if flight.futures:
            with suppress(CancelledError):  # an earlier one may say why
                flight.futures[-1].exception()  # the last to start: so this thread wakes up once and not for each
        for future in flight.futures:
            future.result()
        if flight.causes:
            causes = dict(sorted(flight.causes.items()))
            raise BatchFailed(str(next(iter(causes.values()))), causes)
        return [_dense(result) if isinstance(result, list) else result for result in flight.results]

    def close(self) -> None:
        """Stop after the current rows and wait for the threads, for a limited time."""
        if self._closed:
            return
        self._closed = True
        self._flights.clear()
        if self._pid == os.getpid():  # threads do not exist in a forked child
            self._pool.close()
            if self._leave is not None:
                self._leave()

    def _chunk(self, feed: Feed, flight: _Flight, start: int, stop: int) -> None:
        """Compute rows start..stop on a thread of the pool; the error of a row goes to `flight.causes`."""
        MOST_PIXELS.set(1 << 62)  # sizes were checked already, and Options.max_pixels may exceed the default
        again = bool(self._made)
        if (
            not again
            and self._whole is not None
            and stop - start > 1
            and self._whole.computed(feed, flight.results, start, stop)
        ):
            return
        with Kept() as kept:
            self._rows(feed, flight, start, stop, again, kept)

    def _rows(self, feed: Feed, flight: _Flight, start: int, stop: int, again: bool, kept: Kept) -> None:
        """Compute rows start..stop one by one; `kept` has what a row holds of the budget of large images."""
        code = self._code
        slots: list[Any] = [None] * code.slots
        for n, constant in code.constants:
            slots[n] = constant
        columns = [(n, feed.values[n]) for n in code.columns]
        for row in range(start, stop):
            if self._closed:
                return
            if again and (made := self._made.take(feed, row)) is not None:
                for result, value in zip(flight.results, made, strict=True):
                    result[row] = value
                continue
            for n, column in columns:
                slots[n] = column[row]
            try:
                self._row(slots, flight.results, row)
            except DataError as error:
                # The traceback refers to this frame, to `flight` and so to the error itself: until garbage collection
                # this cycle keeps the record's 1 MB read buffer alive. A decoder's traceback is of no use anyway.
                flight.causes[row] = error.kept() if isinstance(error, DecodeError) else error
            if kept.shares:
                slots[code.inputs :] = [None] * (code.slots - code.inputs)  # its images are large
                kept.release()
        # The next batch may be far off; do not keep the images of this one alive until then.
        slots.clear()

    def _row(self, slots: list[Any], results: list[Any], row: int) -> None:
        code = self._code
        for n, target in code.targets:
            slots[target] = results[n][row]
        for step, name in code.steps:
            try:
                step(slots)
            except DataError as error:
                raise error.at(stage=name) from error.__cause__
            except MissingDependencyError:  # no record is bad for it
                raise
            except Exception as error:
                kind = DecodeError if "decode" in name else FunctionError
                raise kind(text_of(error), stage=name) from error
        for n, (output, result) in enumerate(zip(code.outputs, results, strict=True)):
            value = slots[output.slot]
            if output.shape is None:
                result[row] = self._owned(slots, n)
            elif output.target is None or value is not slots[output.target]:
                _store(result, row, value)

    def _owned(self, slots: list[Any], n: int) -> Array:
        """The row of output `n` as an array that is not a view, an input or another output."""
        outputs = self._code.outputs
        array = np.asarray(slots[outputs[n].slot])
        mine = array.base is None and array.flags.writeable and array.flags.c_contiguous
        others = (*range(self._code.inputs), *(output.slot for output in outputs[:n]))
        return array if mine and not any(array is slots[other] for other in others) else np.array(array, order="C")


def _one_thread() -> Callable[[], None]:
    """Keep OpenCV to the threads of executors; returns what ends that."""
    from ..ops._shared.libraries import ONE_THREAD

    ONE_THREAD.enter()
    return ONE_THREAD.leave


def _store(result: Array, row: int, value: Any) -> None:
    value = np.asarray(value)
    if value.shape != result.shape[1:] or value.dtype != result.dtype:
        needed = f"{result.dtype}{list(result.shape[1:])}"
        raise FunctionError(
            f"a result was declared as {needed}, got {value.dtype}{list(value.shape)}; correct its infer()"
        )
    result[row] = value


def _dense(rows: Sequence[Array]) -> Any:
    """One array if all rows have one shape and dtype, else a list."""
    first = rows[0]
    if all(row.shape == first.shape and row.dtype == first.dtype for row in rows):
        return np.stack(rows)
    return list(rows)


def can_compute(program: Program, feed: Feed) -> bool:
    """Whether the first row of a batch can be computed in NumPy; False if an op has no NumPy form."""
    if not all(value.op.supports("reference") for value in program.values if isinstance(value, Apply)):
        return False
    executor = NumpyExecutor(program, 1, 1)
    try:
        executor.submit(feed.chosen([0]).on_host())
        executor.collect()
    except BatchFailed:
        return False
    finally:
        executor.close()
    return True
