"""interleave: the elements of several datasets in turn, in tf.data's exact order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import DataError
from ..random import mix64
from .base import Context, Element, Flow, Hole
from .elements import close
from .watch import SOMEWHERE, Watch, Where

__all__ = ["FlatMapFlow", "Inner", "InterleaveFlow"]


@dataclass(slots=True)
class Inner:
    """How to open the dataset that belongs to one outer element.

    Attributes:
        open: gives the elements of that dataset, for the context it is opened in and the outer element.
    """

    open: Callable[[Context, Element], Iterator[Element]]


def open_inner(inner: Inner, at: Context, outer: Element) -> Iterator[Element]:
    """Open the dataset of an outer element, keyed by it. A hole gives a dataset of that one hole."""
    value, stream, position = outer
    if type(value) is Hole:
        return iter([outer])
    try:
        return inner.open(at.inside(mix64(stream.key, position)), outer)
    except DataError as error:
        return iter([(Hole(error.at(stream.name, position, "interleave", stream.unit)), stream, position)])


@dataclass(frozen=True, slots=True)
class FlatMapFlow:
    """One inner dataset after the other."""

    source: Flow
    inner: Inner
    where: Where = SOMEWHERE

    def open(self, at: Context) -> Iterator[Element]:
        outer = self.source.open(at)
        watch, empty = Watch(self.where), 0
        try:
            for element in outer:
                opened = open_inner(self.inner, at, element)
                items = iter(opened)
                try:
                    empty += 1
                    for first in items:
                        empty = 0
                        yield first
                        yield from items
                finally:
                    close(opened)
                if empty:
                    watch.nothing(empty)
                    if at.run.stopped.is_set():
                        return
        finally:
            close(outer)


@dataclass(frozen=True, slots=True)
class InterleaveFlow:
    """`cycle` inner datasets in turn, `block` elements of each; an exhausted slot is refilled when its turn comes.

    Attributes:
        deterministic: False takes the next dataset that has an element ready, and waits only if none has.
    """

    source: Flow
    inner: Inner
    cycle: int
    block: int
    deterministic: bool = True
    where: Where = SOMEWHERE

    def open(self, at: Context) -> Iterator[Element]:
        return Interleaved(self, at)


class Interleaved:
    """The running interleave (the algorithm of tf.data, checked against it in 100 configurations)."""

    def __init__(self, flow: InterleaveFlow, at: Context) -> None:
        self._flow = flow
        self._context = at
        self._outer: Any = flow.source.open(at)
        self._slots: list[Any] = [None] * flow.cycle
        self._items: list[Any] = [None] * flow.cycle  # what to take from: `iter` of the slot
        self._at = 0
        self._run = 0
        self._more = True
        self._open = 0
        self._watch = Watch(flow.where)

    def __iter__(self) -> Iterator[Element]:
        return self

    def __next__(self) -> Element:
        flow = self._flow
        cycle = flow.cycle
        empty = 0
        while self._more or self._open:
            if not flow.deterministic:
                self._to_a_ready_one()
            at = self._at
            items = self._items[at]
            if items is not None:
                element: Element | None = next(items, None)
                if element is not None:
                    if type(element[0]) is Hole and element[0].raised:
                        return element  # no element any more: it takes no turn
                    self._run += 1
                    if self._run == flow.block:
                        self._run = 0
                        self._at = (at + 1) % cycle
                    return element
                close(self._slots[at])
                self._slots[at] = self._items[at] = None
                self._open -= 1
                self._advance(cycle)
                empty += 1
                self._watch.nothing(empty)
                if self._context.run.stopped.is_set():
                    break
            elif self._more:
                outer = next(self._outer, None)
                if outer is None:
                    self._more = False
                elif type(outer[0]) is Hole and outer[0].raised:
                    return outer  # type: ignore[no-any-return]
                else:
                    slot = self._slots[at] = open_inner(flow.inner, self._context, outer)
                    self._items[at] = iter(slot)
                    self._open += 1
            else:
                self._advance(cycle)
        raise StopIteration

    def _advance(self, cycle: int) -> None:
        self._run = 0
        self._at = (self._at + 1) % cycle

    def _to_a_ready_one(self) -> None:
        """Go to the first slot, from here on, that needs no waiting. Where none is ready, stay, or wait for any."""
        cycle = self._flow.cycle
        while True:
            for step in range(cycle):
                at = (self._at + step) % cycle
                slot = self._slots[at]
                if (slot is None and self._more) or (slot is not None and getattr(slot, "ready", _always)()):
                    if step:
                        self._at, self._run = at, 0
                    return
            # Only what makes elements without being asked is worth waiting for: the one that is ready first.
            if not all(slot is None or getattr(slot, "ahead", False) for slot in self._slots):
                return
            if self._context.run.stopped.wait(0.001):
                return

    def close(self) -> None:
        """Close every open dataset."""
        for slot in self._slots:
            close(slot)
        self._slots = [None] * self._flow.cycle
        self._items = [None] * self._flow.cycle
        self._open = 0
        self._more = False
        close(self._outer)


def _always() -> bool:
    return True
