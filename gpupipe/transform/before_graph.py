"""before_graph: ops that the host computes before a graph of DALI runs: decoding a JPEG at a fraction of its size.

DALI's decoders have no such setting. So the results of these ops (`Op.before_graph`) are inputs of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np

from ..classes import dataclass
from ..errors import DataError, DecodeError, text_of
from ..extract.images.decode import MOST_PIXELS, UNBOUNDED
from ..graph.values import Apply, Const, Input, Item, Value
from ..threads import DaemonPool
from .program import BatchFailed, Executor, Feed, Program, WrongPixels

__all__ = ["BeforeGraph", "calls_before"]

_Results = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Flight:
    """A batch in flight, and for each call the results of every row."""

    feed: Feed
    made: list[list[Future[_Results]]]


def calls_before(program: Program) -> list[Apply]:
    """The calls of a program that come before its graph."""
    return [value for value in program.values if isinstance(value, Apply) and value.op.before_graph]


class BeforeGraph(Executor):
    """Computes some calls of a program on threads of its own, and the rest with another executor.

    Args:
        program: the program of a stage, of which `calls_before` finds some calls; these read what enters the graph.
        batch_size: the largest batch that will be submitted.
        threads: number of threads.
        make: makes the executor of the rest.
    """

    def __init__(self, program: Program, batch_size: int, threads: int, make: Callable[[Program], Executor]) -> None:
        self._calls = calls_before(program)
        rest, made = _rest(program, self._calls)
        self._program, self._inner = program, make(rest)
        super().__init__(self._inner.label, batch_size)
        self.on_gpu = self._inner.on_gpu
        self._pool = DaemonPool(threads, "gpupipe-decode")
        self.busy = self._pool.busy
        places = {value: (-1, n) for n, value in enumerate(program.inputs)} | made
        self._sources = [places[value] for value in rest.inputs]
        outside = {value: place for value, place in _results(self._calls).items() if value in program.outputs}
        self._outputs = [outside.get(value) for value in program.outputs]

    def _start(self, feed: Feed) -> _Flight:
        rows = {value: feed.values[n] for n, value in enumerate(self._program.inputs)}
        made = []
        for call in self._calls:
            columns = [[x.value] * feed.size if isinstance(x, Const) else rows[x] for x in call.inputs]
            made.append([self._pool.submit(_computed, call, row) for row in zip(*columns, strict=True)])
        return _Flight(feed, made)

    def _finish(self, flight: _Flight) -> list[Any]:
        causes: dict[int, DataError] = {}
        made: list[list[_Results]] = [[] for _ in flight.made]
        for which, futures in enumerate(flight.made):
            for row, future in enumerate(futures):
                try:
                    made[which].append(future.result())
                except DataError as error:
                    causes.setdefault(row, error.kept() if isinstance(error, DecodeError) else error)
        if causes:
            causes = dict(sorted(causes.items()))
            raise BatchFailed(str(next(iter(causes.values()))), causes)

        def column(which: int, n: int) -> Any:
            return flight.feed.values[n] if which < 0 else [row[n] for row in made[which]]

        given = flight.feed
        feed = Feed(given.size, tuple(column(*source) for source in self._sources), given.verified, given.large)

        def whole(results: list[Any]) -> list[Any]:
            inside = iter(results)
            return [next(inside) if place is None else column(*place) for place in self._outputs]

        try:
            return whole(self._inner.run(feed))
        except WrongPixels as found:
            raise WrongPixels(found.rows, found.where, whole(found.results)) from None

    def discard(self) -> None:
        self._stop()
        self._inner.discard()

    def close(self) -> None:
        self._stop()
        self._inner.close()

    def _stop(self) -> None:
        if not self._closed:
            self._closed = True
            self._flights.clear()
            self._pool.close()


def _computed(call: Apply, arguments: tuple[Any, ...]) -> _Results:
    """The results for one row, contiguous, as DALI needs them."""
    MOST_PIXELS.set(UNBOUNDED)  # sizes were checked already, and Options.max_pixels may exceed the default
    try:
        results = call.op.reference(*arguments)
    except DataError as error:
        raise error.at(stage=call.op.stage) from error.__cause__
    except Exception as error:
        raise DecodeError(text_of(error), stage=call.op.stage) from error
    return tuple(map(np.ascontiguousarray, results))


def _results(calls: list[Apply]) -> dict[Value, tuple[int, int]]:
    """The results of some calls: which call, and which of its results."""
    return {Item(call, n): (which, n) for which, call in enumerate(calls) for n in range(len(call.specs))}


def _rest(program: Program, calls: list[Apply]) -> tuple[Program, dict[Value, tuple[int, int]]]:
    """The program without some calls, and which of their results its new inputs are.

    All else that enters the graph stays as it is, random parameters among it.
    """
    results = _results(calls)
    done: dict[Value, Value] = {value: Input(-1 - n, value.spec) for n, value in enumerate(results)}
    for value in program.values:
        if value not in done and value not in calls:
            inputs = value.inputs
            new = tuple(done.get(below, below) for below in inputs)
            done[value] = value if new == inputs else value.rebuild(new)
    outputs = tuple(done[output] for output in program.outputs if output not in results)
    return Program(outputs), {done[value]: place for value, place in results.items()}
