"""elements: flows that pass elements on without looking inside. They count holes like elements."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from .base import Context, Element, Flow, Hole
from .watch import SOMEWHERE, Watch, Where

__all__ = ["ConcatenateFlow", "EnumerateFlow", "RepeatFlow", "ShardFlow", "SkipFlow", "TakeFlow", "ZipFlow", "close"]


def close(iterator: Any) -> None:
    """Close an iterator that can be closed. A generator that runs in another thread ends when that lets go of it."""
    closer = getattr(iterator, "close", None)
    if closer is None:
        return
    try:
        closer()
    except ValueError as error:
        if str(error) != "generator already executing":
            raise
    except RecursionError:
        # Closing nests twice as many calls as asking for an element. What is further down ends with the last reference
        # to it, and what has a thread there is told by the run, too.
        return


def counts(element: Element) -> bool:
    """Whether an item is an element: everything but a hole on its way to being raised."""
    value = element[0]
    return type(value) is not Hole or not value.raised


class Wrapped:
    """An iterator over another one, that closes it too.

    `iter` gives the items themselves: a loop over them does not pass through here for every element.
    """

    __slots__ = ("_inner", "_items")

    def __init__(self, items: Iterator[Element], inner: Any) -> None:
        self._items = items
        self._inner = inner

    def __iter__(self) -> Iterator[Element]:
        return self._items

    def __next__(self) -> Element:
        return next(self._items)

    def close(self) -> None:
        close(self._inner)


@dataclass(frozen=True, slots=True)
class TakeFlow:
    """The first `count` elements."""

    source: Flow
    count: int

    def open(self, at: Context) -> Iterator[Element]:
        if self.count == 0:
            return iter(())
        inner = self.source.open(at)
        return Wrapped(self._taken(inner), inner)

    def _taken(self, inner: Iterator[Element]) -> Iterator[Element]:
        left = self.count
        for element in inner:
            yield element
            if type(element[0]) is not Hole or counts(element):
                left -= 1
            if not left:
                break
        close(inner)  # what reads ahead stops now, not when the pipeline ends


@dataclass(frozen=True, slots=True)
class SkipFlow:
    """All but the first `count` elements."""

    source: Flow
    count: int
    where: Where = SOMEWHERE

    def open(self, at: Context) -> Iterator[Element]:
        inner = self.source.open(at)
        return Wrapped(self._skipped(inner, at.run.stopped), inner)

    def _skipped(self, inner: Iterator[Element], stopped: threading.Event) -> Iterator[Element]:
        left, watch = self.count, Watch(self.where)
        for element in inner:
            if stopped.is_set():
                return
            if not left:
                yield element
                break
            if counts(element):
                left -= 1
                watch.nothing(self.count - left)
            else:
                yield element
        yield from inner


@dataclass(frozen=True, slots=True)
class ShardFlow:
    """Every `shards`-th element."""

    source: Flow
    shards: int
    index: int

    def open(self, at: Context) -> Iterator[Element]:
        inner = self.source.open(at)
        return Wrapped(self._chosen(inner), inner)

    def _chosen(self, inner: Iterator[Element]) -> Iterator[Element]:
        at = self.shards - self.index
        for element in inner:
            if type(element[0]) is Hole and not counts(element):
                yield element
            elif at == self.shards:
                yield element
                at = 1
            else:
                at += 1


@dataclass(frozen=True, slots=True)
class EnumerateFlow:
    """A running number as a first column."""

    source: Flow
    start: int

    def open(self, at: Context) -> Iterator[Element]:
        inner = self.source.open(at)
        return Wrapped(self._numbered(inner), inner)

    def _numbered(self, inner: Iterator[Element]) -> Iterator[Element]:
        i = self.start
        for element in inner:
            value, stream, position = element
            if type(value) is Hole:
                yield element
                i += counts(element)
                continue
            yield (np.int64(i), *value), stream, position
            i += 1


@dataclass(frozen=True, slots=True)
class RepeatFlow:
    """The input `count` times, endlessly for a negative count. A pass without any element ends it."""

    source: Flow
    count: int
    number: int

    def open(self, at: Context) -> Iterator[Element]:
        passes = Passes(self, at)
        return Wrapped(chain.from_iterable(passes), passes)


class Passes:
    """The passes of a repeat, one iterator each."""

    def __init__(self, flow: RepeatFlow, at: Context) -> None:
        self._flow = flow
        self._at = at
        self._done = 0
        self._seen = True
        self._inner: Iterator[Element] | None = None

    def __iter__(self) -> Iterator[Iterator[Element]]:
        return self

    def __next__(self) -> Iterator[Element]:
        close(self._inner)
        if self._done == self._flow.count or not self._seen or self._at.run.stopped.is_set():
            raise StopIteration
        self._seen = False
        self._inner = self._flow.source.open(self._at.under(self._flow.number, self._done))
        self._done += 1
        return self._noted(self._inner)

    def _noted(self, inner: Iterator[Element]) -> Iterator[Element]:
        for element in inner:
            self._seen = True
            yield element
            break
        yield from inner

    def close(self) -> None:
        """End the pass at hand."""
        close(self._inner)


@dataclass(frozen=True, slots=True)
class ConcatenateFlow:
    """One input after the other."""

    inputs: Sequence[Flow]
    number: int

    def open(self, at: Context) -> Iterator[Element]:
        for i, source in enumerate(self.inputs):
            inner = source.open(at.under(self.number, i))
            try:
                yield from inner
            finally:
                close(inner)


@dataclass(frozen=True, slots=True)
class ZipFlow:
    """The columns of several inputs side by side, and behind them the identities of all but the first.

    A pair with a hole is a hole.
    """

    inputs: Sequence[Flow]
    number: int

    def open(self, at: Context) -> Iterator[Element]:
        opened = [source.open(at.under(self.number, i)) for i, source in enumerate(self.inputs)]
        first, *others = [iter(inner) for inner in opened]
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
                        yield part
                yield ((*columns, *identities) if hole is None else hole), stream, position
        finally:
            for inner in opened:
                close(inner)
