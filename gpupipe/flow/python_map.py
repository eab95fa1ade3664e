"""python_map: ordinary Python for each element, inline or in an ordered pool of threads."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..eager import ELEMENT, ElementRng
from ..errors import DataError, FunctionError, GpupipeError
from ..extract.decode import MOST_PIXELS
from ..random import hash64, mix64
from ..spec import Structure, TensorSpec, as_leaf, describe, flatten, own, spec_of
from ..trace import call_with
from .base import Context, Element, Flow, Hole
from .elements import close
from .host import truth
from .sources import conform, failed, same_structure
from .threads import DaemonPool

__all__ = ["PythonFilterFlow", "PythonFunction", "PythonMapFlow"]


@dataclass(frozen=True)
class PythonFunction:
    """A user's function between columns.

    Attributes:
        fn: called as tf.data calls it.
        structure: of its argument.
        who: the method, for messages.
        result: structure and specs that its result must have; None takes what comes.
        rng: hand in a generator, keyed like an op.
        site: tells this function's numbers from those of another step.
    """

    fn: Callable[..., Any]
    structure: Structure
    who: str = "map"
    result: tuple[Structure, tuple[TensorSpec, ...]] | None = None
    rng: bool = False
    site: str = ""
    seen: list[Structure] = field(default_factory=list, compare=False)

    def learned(self) -> Structure | None:
        """The structure of the first result, once there was one."""
        return self.seen[0] if self.seen else None

    def __call__(self, element: Element, at: Context) -> Element:
        """The element with its new columns, or a hole."""
        columns, stream, position = element
        key = mix64(stream.key, position)
        token = ELEMENT.set(ElementRng(at.run.settings.seed, at.epoch, mix64(key, hash64(self.site))))
        MOST_PIXELS.set(at.run.settings.max_pixels)  # this may be a thread of the pool
        try:
            argument = self.structure.unflatten([bytes(c) if type(c) is memoryview else c for c in columns])
            value = self._call(argument, at, key)
            return self._columns(value), stream, position
        except DataError as error:
            return Hole(error.at(stream.name, position, self.who, stream.unit)), stream, position
        except GpupipeError as error:
            return Hole(failed(self.who, error, stream, position)), stream, position
        except Exception as error:
            return Hole(failed(self.who, error, stream, position)), stream, position
        finally:
            ELEMENT.reset(token)

    def _call(self, argument: Any, at: Context, key: int) -> Any:
        if not self.rng:
            return call_with(self.fn, argument)
        words = [at.run.settings.seed, mix64(mix64(key, at.epoch), hash64(self.site))]
        generator = np.random.Generator(np.random.Philox(key=np.array(words, np.uint64)))
        arguments = argument if type(argument) is tuple else (argument,)
        return self.fn(*arguments, generator)

    def _columns(self, value: Any) -> tuple[Any, ...]:
        if value is None:
            raise FunctionError(f"{self.who} needs a function that returns an element, got None")
        leaves, structure = flatten(tuple(value) if type(value) is list else value)
        columns = tuple([own(as_leaf(leaf)) for leaf in leaves])
        if self.result is not None:
            return conform(self.who, structure, columns, *self.result)
        same_structure(self.who, structure, self.seen)
        return columns


@dataclass(frozen=True, slots=True)
class PythonMapFlow:
    """A Python function of each element.

    Attributes:
        calls: threads that run it; 0 runs it on the thread that asks.
        deterministic: whether results keep the order of their inputs.
    """

    source: Flow
    function: PythonFunction
    calls: int = 0
    deterministic: bool = True

    def open(self, at: Context) -> Iterator[Element]:
        inner = self.source.open(at)
        return _Inline(self, inner, at) if self.calls == 0 else _Pool(self, inner, at)


class _Inline:
    """Runs the function on the thread that asks, and checks that every result is like the first."""

    def __init__(self, flow: PythonMapFlow, inner: Iterator[Element], at: Context) -> None:
        self._function = flow.function
        self._inner = inner
        self._at = at
        self._check = SameSpecs(flow.function)

    def __iter__(self) -> Iterator[Element]:
        return self

    def __next__(self) -> Element:
        element = next(self._inner)
        return element if type(element[0]) is Hole else self._check(self._function(element, self._at))

    def close(self) -> None:
        """Close the input."""
        close(self._inner)


class SameSpecs:
    """Checks results of a Python function against the first one: number of leaves, dtypes and ranks."""

    def __init__(self, function: PythonFunction) -> None:
        self._who = function.who
        self._first: list[TensorSpec] | None = None

    def __call__(self, element: Element) -> Element:
        """The element, or a hole if it is unlike the first."""
        columns, stream, position = element
        if type(columns) is Hole:
            return element
        specs = [spec_of(column) for column in columns]
        if self._first is None:
            self._first = specs
            return element
        first = self._first
        if len(first) == len(specs) and all(
            a.dtype == b.dtype and a.rank == b.rank for a, b in zip(first, specs, strict=True)
        ):
            return element
        error = FunctionError(
            f"needs a function whose results are all of one dtype and rank, got {describe(tuple(specs))} after "
            f"{describe(tuple(first))}; convert them, or say what it returns with spec="
        )
        return Hole(error.at(stream.name, position, self._who, stream.unit)), stream, position


class _Pool:
    """Runs the function in threads. At most twice as many elements as threads are in work."""

    def __init__(self, flow: PythonMapFlow, inner: Iterator[Element], at: Context) -> None:
        self._flow = flow
        self._inner = inner
        self._at = at
        self._check = SameSpecs(flow.function)
        self._pool = DaemonPool(flow.calls, "gpupipe-map")
        self._work: deque[Future[Element]] = deque()
        self._more = True
        self._end: Future[Any] = Future()
        self._forget = at.run.on_close(self.close)

    def __iter__(self) -> Iterator[Element]:
        return self

    def __next__(self) -> Element:
        self._fill()
        if not self._work:
            self.close()
            raise StopIteration
        work = list(self._work)
        candidates: list[Future[Any]] = work[:1] if self._flow.deterministic else work
        if not any(future.done() for future in candidates):
            wait([*candidates, self._end], return_when=FIRST_COMPLETED)
        first = next((future for future in candidates if future.done()), None)
        if first is None or self._end.done():  # closed by another thread, perhaps while a function never comes back
            raise StopIteration
        self._work.remove(first)
        result = first.result()
        self._fill()
        return self._check(result)

    def _fill(self) -> None:
        while self._more and len(self._work) < 2 * self._flow.calls:
            element = next(self._inner, None)
            if element is None:
                self._more = False
            elif type(element[0]) is Hole:
                passed: Future[Element] = Future()
                passed.set_result(element)
                self._work.append(passed)
            else:
                self._work.append(self._pool.submit(self._flow.function, element, self._at))

    def close(self, wait: bool = True) -> None:
        """Stop the threads; functions that are running end first, unless they take too long."""
        self._forget()
        if not self._end.done():
            self._end.set_result(None)
        self._more = False
        self._work.clear()
        self._pool.close(wait)
        if wait:
            close(self._inner)


@dataclass(frozen=True, slots=True)
class PythonFilterFlow:
    """The elements for which a Python predicate holds; holes are passed on."""

    source: Flow
    function: PythonFunction

    def open(self, at: Context) -> Iterator[Element]:
        inner = self.source.open(at)
        return _Filtered(self.function, inner, at)


class _Filtered:
    def __init__(self, function: PythonFunction, inner: Iterator[Element], at: Context) -> None:
        self._function = function
        self._inner = inner
        self._at = at
        self._watch = Watch("filter")

    def __iter__(self) -> Iterator[Element]:
        return self

    def __next__(self) -> Element:
        for element in self._inner:
            columns, stream, position = element
            if type(columns) is Hole:
                return element
            if self._at.run.stopped.is_set():
                break
            answer = self._function(element, self._at)
            if type(answer[0]) is Hole:
                return answer
            try:
                if truth(answer[0][0]) and len(answer[0]) == 1:
                    self._watch.passed()
                    return element
            except DataError as error:
                return Hole(error.at(stream.name, position, "filter", stream.unit)), stream, position
            self._watch.dropped()
        raise StopIteration

    def close(self) -> None:
        """Close the input."""
        close(self._inner)


class Watch:
    """Says in the log that a step has given nothing for a while: it may never end."""

    def __init__(self, who: str, seconds: float = 10.0) -> None:
        self._who = who
        self._seconds = seconds
        self._since = 0.0
        self._count = 0

    def passed(self) -> None:
        """An element came through."""
        self._count = 0

    def dropped(self) -> None:
        """An element did not."""
        self._count += 1
        if self._count == 1:
            self._since = time.monotonic()
        elif self._count % 1024 == 0 and time.monotonic() - self._since > self._seconds:
            import logging

            logging.getLogger("gpupipe").warning("%s has dropped %d elements in a row", self._who, self._count)
            self._since = time.monotonic()
