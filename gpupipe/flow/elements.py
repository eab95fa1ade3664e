"""elements: flows that pass elements on without looking inside. They count holes like elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from ..errors import StateError
from ..op import Array
from .base import Context, Element, Flow, Hole, counts
from .choices import Begins
from .closing import close
from .empty_passes import EmptyPasses
from .places import Access, Chosen, Picked, Through, access, in_turn, passes, strided
from .state import State, below, number, parts_of, snapshot
from .tape import Tape
from .watch import SOMEWHERE, Watch, Where

__all__ = ["ConcatenateFlow", "EnumerateFlow", "RepeatFlow", "ShardFlow", "SkipFlow", "TakeFlow", "ZipFlow", "close"]


class Wrapped:
    """An iterator over another one, that closes it too.

    `iter` gives the items themselves: a loop over them does not pass through here for every element. Between two items
    nothing is held, so its state is that of the input, and what the step counts.

    Args:
        items: the elements.
        inner: what they are made of.
        own: what the step counts, for its state.
    """

    __slots__ = ("_inner", "_items", "_own")

    def __init__(self, items: Iterator[Element], inner: Any, own: Callable[[], dict[str, State]] | None = None) -> None:
        self._items = items
        self._inner = inner
        self._own = own

    def __iter__(self) -> Iterator[Element]:
        return self._items

    def __next__(self) -> Element:
        return next(self._items)

    def snapshot(self) -> State:
        """The state of the input, and what the step counts."""
        source = None if self._inner is None else snapshot(self._inner)
        return {"source": source, **(self._own() if self._own is not None else {})}

    def close(self) -> None:
        close(self._items)
        close(self._inner)


class Cell:
    """A number that a generator counts and a state shows."""

    __slots__ = ("n",)

    def __init__(self, n: int) -> None:
        self.n = n

    @classmethod
    def of(cls, state: State, name: str, first: int) -> Cell:
        """The number in a state; `first` where there is none."""
        return cls(first if state is None else number(state, name))


@dataclass(frozen=True, slots=True)
class TakeFlow:
    """The first `count` elements."""

    source: Flow
    count: int

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        return _Taken(self, at, state)

    def access(self, at: Context) -> Access:
        source = access(self.source, at)
        size = source.size if self.count < 0 else min(self.count, source.size)
        return Chosen(source, size, lambda places: places)


class _Taken:
    def __init__(self, flow: TakeFlow, at: Context, state: State) -> None:
        self._left = flow.count if state is None or flow.count < 0 else number(state, "left")
        if self._left > flow.count >= 0:
            raise StateError(f"load_state_dict needs a state of take({flow.count}), got one with {self._left} left")
        self._inner: Any = None
        if self._left:
            self._inner = flow.source.open(at, below(state))
            self._items = self._taken(self._inner)

    def __iter__(self) -> Iterator[Element]:
        return self._items if self._inner is not None else iter(())

    def __next__(self) -> Element:
        if self._inner is None:
            raise StopIteration
        return next(self._items)

    def _taken(self, inner: Iterator[Element]) -> Iterator[Element]:
        for element in inner:
            if type(element[0]) is not Hole or counts(element):
                self._left -= 1
            yield element
            if not self._left:
                break
        close(inner)  # what reads ahead stops now, not when the pipeline ends

    def snapshot(self) -> State:
        """How many are left; behind the last one the input does not matter."""
        if not self._left:
            return {"left": 0, "source": None}
        return {"left": max(self._left, 0), "source": snapshot(self._inner)}

    def close(self) -> None:
        """Close the input."""
        close(self._inner)


@dataclass(frozen=True, slots=True)
class SkipFlow:
    """All but the first `count` elements."""

    source: Flow
    count: int
    where: Where = SOMEWHERE

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        inner = self.source.open(at, below(state))
        left = Cell.of(state, "left", self.count)
        return Wrapped(self._skipped(inner, at, left), inner, lambda: {"left": left.n})

    def _skipped(self, inner: Iterator[Element], at: Context, left: Cell) -> Iterator[Element]:
        watch, stopped = Watch(self.where), at.run.stopped
        for element in inner:
            if stopped.is_set():
                return
            if not left.n:
                yield element
                break
            if counts(element):
                left.n -= 1
                watch.nothing(self.count - left.n)
            else:
                yield element
        for element in inner:
            yield element

    def access(self, at: Context) -> Access:
        return strided(access(self.source, at), self.count, 1)


@dataclass(frozen=True, slots=True)
class ShardFlow:
    """Every `shards`-th element."""

    source: Flow
    shards: int
    index: int

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        inner = self.source.open(at, below(state))
        place = Cell.of(state, "place", self.shards - self.index)
        return Wrapped(self._chosen(inner, place), inner, lambda: {"place": place.n})

    def _chosen(self, inner: Iterator[Element], place: Cell) -> Iterator[Element]:
        for element in inner:
            if type(element[0]) is Hole and not counts(element):
                yield element
            elif place.n == self.shards:
                place.n = 1
                yield element
            else:
                place.n += 1

    def access(self, at: Context) -> Access:
        return strided(access(self.source, at), self.index, self.shards)


@dataclass(frozen=True, slots=True)
class EnumerateFlow:
    """A running number as a first column."""

    source: Flow
    start: int

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        inner = self.source.open(at, below(state))
        done = Cell.of(state, "n", 0)
        return Wrapped(self._numbered(inner, done), inner, lambda: {"n": done.n})

    def _numbered(self, inner: Iterator[Element], done: Cell) -> Iterator[Element]:
        start = self.start
        for element in inner:
            value, stream, position = element
            if type(value) is Hole:
                done.n += counts(element)
                yield element
                continue
            i = done.n
            done.n = i + 1
            yield (np.int64(start + i), *value), stream, position

    def access(self, at: Context) -> Access:
        return _Enumerated(self, at)


@dataclass(frozen=True, slots=True)
class RepeatFlow:
    """The input `count` times, endlessly for a negative count."""

    source: Flow
    count: int
    where: Where = SOMEWHERE

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        passes = Passes(self, at, state)
        return Repeated(passes)

    def access(self, at: Context) -> Access:
        return passes(lambda index: access(self.source, at.in_pass(index, self.count)), self.count)


class Repeated:
    """The running repeat."""

    __slots__ = ("_items", "_passes")

    def __init__(self, passes: Passes) -> None:
        self._passes = passes
        self._items = chain.from_iterable(passes)

    def __iter__(self) -> Iterator[Element]:
        return self._items

    def __next__(self) -> Element:
        return next(self._items)

    def snapshot(self) -> State:
        """Which pass it is, and where that stands."""
        return self._passes.snapshot()

    def close(self) -> None:
        """End the pass at hand."""
        self._passes.close()


class Passes:
    """The passes of a repeat, one iterator each."""

    def __init__(self, flow: RepeatFlow, at: Context, state: State = None) -> None:
        self._flow = flow
        self._at = at
        self._done = 0 if state is None else number(state, "pass")
        self._empty = EmptyPasses(flow.where, flow.count < 0, at, 0 if state is None else number(state, "empty"))
        if 0 <= flow.count < self._done:
            raise StateError(f"load_state_dict needs a state of {flow.count} passes, got one in pass {self._done}")
        self._begins = Begins(at, below(state, "begins"))
        self._inner: Iterator[Element] | None = None
        self._again = state is not None and self._done > 0  # a pass that goes on, which was not handed out yet
        if self._again:
            self._inner = flow.source.open(at.in_pass(self._done - 1, flow.count), below(state, "source"))

    def __iter__(self) -> Iterator[Iterator[Element]]:
        return self

    def __next__(self) -> Iterator[Element]:
        if self._again and self._inner is not None:
            self._again = False
            return self._noted(self._inner)
        close(self._inner)
        if self._done == self._flow.count or not self._empty.another():
            raise StopIteration
        self._empty.count += 1
        at = self._at.in_pass(self._done, self._flow.count)
        self._inner = self._flow.source.open(at, self._begins.next())
        self._begins.opened(self._inner)
        self._done += 1
        return self._noted(self._inner)

    def _noted(self, inner: Iterator[Element]) -> Iterator[Element]:
        for element in inner:
            self._empty.count = 0
            yield element
            break
        for element in inner:
            yield element

    def snapshot(self) -> State:
        """Which pass it is, how many in a row had no element, and where its input stands."""
        inner = None if self._inner is None else snapshot(self._inner)
        empty = self._empty.count
        return {"pass": self._done, "empty": empty, "source": inner, "begins": self._begins.snapshot()}

    def close(self) -> None:
        """End the pass at hand."""
        close(self._inner)


@dataclass(frozen=True, slots=True)
class ConcatenateFlow:
    """One input after the other.

    Attributes:
        branches: in which of the node's branches each input begins.
    """

    inputs: Sequence[Flow]
    branches: Sequence[int]

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        return _Concatenated(self, at, state)

    def access(self, at: Context) -> Access:
        parts = zip(self.inputs, self.branches, strict=True)
        return in_turn([access(source, at.in_branch(first)) for source, first in parts])


class _Concatenated:
    def __init__(self, flow: ConcatenateFlow, at: Context, state: State) -> None:
        self._flow = flow
        self._at = at
        self._number = 0 if state is None else number(state, "input")
        self._begins = Begins(at, below(state, "begins"))
        self._inner: Iterator[Element] | None = None
        if state is not None and below(state, "open"):
            if self._number >= len(flow.inputs):
                raise StateError(
                    f"load_state_dict needs a state of {len(flow.inputs)} inputs, got one in number {self._number}"
                )
            self._inner = flow.inputs[self._number].open(at.in_branch(flow.branches[self._number]), below(state))
        self._items = self._in_turn()

    def __iter__(self) -> Iterator[Element]:
        return self._items

    def __next__(self) -> Element:
        return next(self._items)

    def _in_turn(self) -> Iterator[Element]:
        inputs = self._flow.inputs
        while self._number < len(inputs):
            inner = self._inner
            if inner is None:
                at = self._at.in_branch(self._flow.branches[self._number])
                inner = self._inner = inputs[self._number].open(at, self._begins.next())
                self._begins.opened(inner)
            try:
                for element in inner:
                    yield element
            finally:
                close(inner)
            self._inner = None
            self._number += 1

    def snapshot(self) -> State:
        """Which input it is, and where that stands."""
        opened = self._inner is not None
        source = snapshot(self._inner) if opened else None
        return {"input": self._number, "open": opened, "source": source, "begins": self._begins.snapshot()}

    def close(self) -> None:
        """Close the input at hand."""
        close(self._inner)
        close(self._items)


@dataclass(frozen=True, slots=True)
class ZipFlow:
    """The columns of several inputs side by side, and behind them the identities of all but the first.

    A pair with a hole is a hole.
    """

    inputs: Sequence[Flow]
    number: int

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        states = [None] * len(self.inputs) if state is None else parts_of(state, "inputs", len(self.inputs))
        return _Zipped(
            [
                Tape(source, at.in_zip(self.number, i), part)
                for i, (source, part) in enumerate(zip(self.inputs, states, strict=True))
            ]
        )

    def access(self, at: Context) -> Access:
        return _ZippedAccess(self, at)


class _Zipped:
    def __init__(self, tapes: list[Tape]) -> None:
        self._tapes = tapes
        self._held = 0  # inputs of which the element of an unfinished pair was taken
        self._items = self._pairs()

    def __iter__(self) -> Iterator[Element]:
        return self._items

    def __next__(self) -> Element:
        return next(self._items)

    def _pairs(self) -> Iterator[Element]:
        first, *others = [tape.items for tape in self._tapes]
        try:
            for element in first:
                value, stream, position = element
                hole: Hole | None = None
                columns: list[Any] = []
                if type(value) is not Hole:
                    columns += value
                elif value.raised:
                    yield element
                    continue
                else:
                    hole = value
                identities = []
                for other in others:
                    while True:
                        part = next(other, None)
                        if part is None:
                            return
                        more = part[0]
                        if type(more) is not Hole:
                            columns += more
                            identities.append(part[1:])
                            break
                        if not more.raised:
                            hole = hole or more
                            break
                        self._held = others.index(other) + 1
                        yield part
                        self._held = 0
                yield ((*columns, *identities) if hole is None else hole), stream, position
        finally:
            for tape in self._tapes:
                close(tape.inner)

    def snapshot(self) -> State:
        """Where the inputs stand; behind an error in the middle of a pair, those in front of it one element back."""
        return {
            "inputs": [tape.state(tape.count - 1 if j < self._held else None) for j, tape in enumerate(self._tapes)]
        }

    def close(self) -> None:
        """Close the inputs."""
        close(self._items)
        for tape in self._tapes:
            close(tape.inner)


class _Enumerated(Through):
    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        for block in blocks:
            found = self._source.pick(iter([block]))
            numbers = iter((block + self._flow.start).tolist())
            for element in found:
                if not counts(element):
                    yield element
                    continue
                number = np.int64(next(numbers))
                value, stream, position = element
                yield element if type(value) is Hole else ((number, *value), stream, position)


class _ZippedAccess(Access):
    """Elements side by side."""

    def __init__(self, flow: ZipFlow, at: Context) -> None:
        self._flow = flow
        self._at = at
        self._parts = [access(source, at.in_zip(flow.number, i)) for i, source in enumerate(flow.inputs)]
        self.size = min(part.size for part in self._parts)

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        for block in blocks:
            picked = [Picked(part, iter([block])) for part in self._parts]
            found = replace(self._flow, inputs=picked).open(self._at)
            try:
                for element in found:
                    yield element
            finally:
                close(found)
