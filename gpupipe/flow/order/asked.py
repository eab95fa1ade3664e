"""asked: the elements at places that come while the chain runs, from a user's iterator.

The chain must not wait for a place while it holds elements that could be delivered. So steps that take several elements
before they give one (parallel maps, groups of images) ask `access.waits` before they take another. Those above look at
the elements that are due. Those below, which make the elements, may be several and have threads: each says how many
elements it has taken, and what came beyond that is below it and needs no other place.
"""

from __future__ import annotations

import operator
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from ...brief import brief
from ...classes import dataclass
from ...errors import DataError, PlanError, StateError, ends_run
from ...graph.op import Array
from ...plan.index import Asked
from ...threads import Flag, Room, Thread
from ..access import access
from ..check import failed
from ..element import Element, Stream, is_element
from ..run import Context, Flow
from ..stall import SOMEWHERE, Where
from ..state.snapshot import State
from ..step import Running, close
from .select_by_index import ByIndex

__all__ = ["BATCHES_AHEAD", "PLACES_AHEAD", "AskedElements", "AskedFlow"]

PLACES_AHEAD = 64
"""Places that a thread takes ahead of those that were asked for; of batches `BATCHES_AHEAD`."""

BATCHES_AHEAD = 2

MOMENT = 0.001
"""Seconds for which `waits` gives the thread that takes places a chance to take one."""

LOOK = 0.1
"""Seconds between two looks at whether the run was stopped, while a thread waits for a place."""

_END: Any = object()
"""What comes after the last place."""


@dataclass(frozen=True, slots=True)
class AskedFlow:
    """The elements of the input at the places that an iterator names.

    Attributes:
        source: the input.
        order: gives the places.
        rows: elements for each place: those of a batch, which is made of them, or 1.
        ahead: places that a thread may take ahead.
        where: the step, for messages.
    """

    source: Flow
    order: Asked
    rows: int = 1
    ahead: int = PLACES_AHEAD
    where: Where = SOMEWHERE

    def open(self, at: Context, state: State = None) -> Running:
        return AskedElements(self, at, state)


class AskedElements(ByIndex):
    """Elements whose places come one by one. The state is how many elements were given, and errors after the last one.

    Places are taken in the thread that asks for elements, if that is the user's; once `waits` was called, and where a
    thread of the run asks for elements, in a thread of their own.
    """

    def __init__(self, flow: AskedFlow, at: Context, state: State) -> None:
        self._flow, self._at = flow, at
        self._places: Iterator[Any] | None = None
        self._ahead: _Ahead | None = None
        self._came = 0  # elements that belong to places which came; the thread that takes places counts them
        self._gave = 0  # those that were given
        at.run.asked.append(self)
        super().__init__(self._elements, at, state)

    def waits(self) -> bool:
        """Whether another element may need a place that has not come yet."""
        return self.waits_below(self._gave)

    def waits_below(self, taken: int) -> bool:
        """The same for a step below, which has taken so many elements of all places."""
        if self._came > taken or self._places is None:
            return False
        return self._taker(self._places).waits()

    def close(self) -> None:
        with suppress(ValueError):
            self._at.run.asked.remove(self)
        if self._ahead is not None:
            self._ahead.close()
        super().close()

    def _elements(self, given: int) -> Iterator[Element]:
        """The elements after so many. Nothing is asked for before the first of them is."""
        flow, at = self._flow, self._at
        source = access(flow.source, at.for_places(self))
        places = self._places = self._opened()
        for done in range(given // flow.rows):  # they were given before
            if next(places, _END) is _END:
                raise self._fewer(done)
        found = source.pick(self._blocks(places, source.size, given % flow.rows))
        try:
            while True:
                element = next(found, None)
                if element is None:
                    break
                self._gave += is_element(element)
                yield element
                if at.run.stopped.on:
                    return
        finally:
            close(found)
            if self._ahead is None:  # else its thread may be inside
                close(places)
        yield from source.changed()

    def _opened(self) -> Iterator[Any]:
        """The places, from their start.

        Raises:
            PlanError: they come from an iterator, and another pass has taken it.
        """
        order = self._flow.order
        if order.once:
            mine = object()
            order.taken.append(mine)
            if order.taken[0] is not mine:  # of several threads the first has it
                raise PlanError(
                    f"{self._flow.where.step} at {self._flow.where.line} needs places for another pass, got an "
                    "iterator, which gave its places to an earlier one; give pick a list, or a function that returns "
                    "an iterator"
                )
        return _guarded(order.places, self._at.stream("places", "pick"))

    def _blocks(self, places: Iterator[Any], n: int, skip: int) -> Iterator[Array]:
        """The indices of the elements of each place, without the first `skip`."""
        rows = self._flow.rows
        while True:
            place = self._next(places)
            if place is _END:
                if skip and not self._at.run.stopped.on:
                    raise self._fewer(self._given // rows)
                return
            number = _checked(place, n // rows, self._flow.where.line)
            block = np.arange(number * rows + skip, (number + 1) * rows)
            self._came += len(block)
            skip = 0
            yield block

    def _fewer(self, count: int) -> StateError:
        """The error for places that end before the position of a state."""
        return StateError(
            f"load_state_dict needs the places that the state was taken over, got {count} of {self._flow.where.step} "
            f"at {self._flow.where.line}, which end before the position to continue from"
        )

    def _next(self, places: Iterator[Any]) -> Any:
        """The next place, `_END` after the last one."""
        if self._ahead is None and not isinstance(threading.current_thread(), Thread):
            return next(places, _END)
        return self._taker(places).next()

    def _taker(self, places: Iterator[Any]) -> _Ahead:
        if self._ahead is None:
            self._ahead = _Ahead(places, self._flow.ahead, self._at.run.stopped)
        return self._ahead


def _guarded(given: Any, stream: Stream) -> Iterator[Any]:
    """The values of the user's object, whose exceptions become errors of the step.

    Closing this closes an iterator that a function made, and one that came from the user as a generator.
    """
    count = 0
    places: Any = None
    try:
        places = iter(given if hasattr(given, "__iter__") else given())
        while True:
            try:
                place = next(places)
            except StopIteration:
                return
            yield place
            count += 1
    except DataError:
        raise
    except BaseException as error:
        if ends_run(error):
            raise
        raise failed("pick", error, stream, count) from error
    finally:
        close(places)


class _Ahead:
    """Takes places in a thread of its own, which only the iterator can keep waiting.

    The thread refers to neither this object nor the run, so that it ends, too, where a loop is left without a close.
    """

    def __init__(self, places: Iterator[Any], most: int, stopped: Flag) -> None:
        self._stopped = stopped
        self._shared = _Shared(most)
        Thread(_take, (places, self._shared), name="gpupipe-places").start()
        weakref.finalize(self, _end, self._shared)

    def waits(self) -> bool:
        """Whether `next` would wait."""
        shared = self._shared
        if not (shared.places or shared.ended):
            with shared.room:
                if not (shared.places or shared.ended):
                    shared.room.wait(MOMENT)
        return not (shared.places or shared.ended)

    def next(self) -> Any:
        """The next place; `_END` after the last one, or if the run was stopped."""
        shared = self._shared
        with shared.room:
            while not shared.places:
                if self._stopped.on or shared.closed:
                    return _END
                if shared.ended:
                    error, shared.error = shared.error, None  # its traceback will refer to this object
                    if error is not None:
                        raise error
                    return _END
                shared.room.wait(LOOK)
            place = shared.places.popleft()
            shared.room.notify_all()
        return place

    def close(self) -> None:
        """End the thread once the iterator lets it."""
        _end(self._shared)


class _Shared:
    """What the thread that takes places, at most so many ahead, shares with the one that asks for them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.room = Room()
        self.places: deque[Any] = deque()
        self.ended = self.closed = False
        self.error: BaseException | None = None


def _end(shared: _Shared) -> None:
    with shared.room:
        shared.closed = True
        shared.room.notify_all()


def _take(places: Iterator[Any], shared: _Shared) -> None:
    """Take places, a few ahead, and close them."""
    try:
        while True:
            place = next(places, _END)
            with shared.room:
                if place is _END or shared.closed:
                    return
                shared.places.append(place)
                shared.room.notify_all()
                while len(shared.places) >= shared.most and not shared.closed:
                    shared.room.wait()
                if shared.closed:
                    return
    except BaseException as error:
        with shared.room:
            shared.error = error
    finally:
        with shared.room:
            shared.ended = True
            shared.room.notify_all()
        close(places)


def _checked(place: Any, n: int, line: str) -> int:
    """A place as an integer.

    Raises:
        PlanError: it is no integer, or an input of `n` lacks it.
    """
    try:
        number = -1 if isinstance(place, (bool, np.bool_)) else operator.index(place)
    except Exception:  # of the user's class; what it is, is said below
        number = -1
    if not 0 <= number < n:
        raise PlanError(f"pick at {line} needs places from 0 to {n - 1}, got {brief(place)}")
    return number
