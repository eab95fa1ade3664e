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
import zlib
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from ...brief import brief
from ...classes import dataclass
from ...errors import DataError, PlanError, StateError, ends_run
from ...graph.op import Array
from ...plan.index import Asked
from ...plan.node import UNKNOWN_CARDINALITY
from ...threads import Flag, Room, Thread
from ..access import access
from ..check import failed
from ..element import Element, Stream, is_element
from ..run import Context, Flow
from ..stall import SOMEWHERE, Where
from ..state.snapshot import State, int_part
from ..step import Running, close
from .samplers import places_of
from .select_by_index import ByIndex

__all__ = ["BATCHES_AHEAD", "PLACES_AHEAD", "AskedElements", "AskedFlow"]

PLACES_AHEAD = 64
"""Places that a thread takes ahead of those that were asked for; of batches `BATCHES_AHEAD`."""

BATCHES_AHEAD = 2

MOMENT = 0.001
"""Seconds for which `waits` gives the thread that takes places a chance to take one."""

LOOK = 0.1
"""Seconds between two looks at whether the run was stopped, while a thread waits for a place."""

PARTS = 32
"""Visits whose files are kept open, of places that come again."""

_MOST_COUNTED = 1 << 26
"""Places up to which an array counts how often each came: 4 bytes for each, of memory that is taken when one comes."""

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
        self.flow, self.at = flow, at
        self._places: Iterator[Any] | None = None
        self._ahead: _Ahead | None = None
        self._came = 0  # elements that belong to places which came; the thread that takes places counts them
        self._gave = 0  # those that were given
        self._numbers = _Numbers()
        self._wanted = int_part(state, "places") if isinstance(state, dict) and "places" in state else None
        at.run.asked.append(self)
        super().__init__(self._elements, at, state)

    def snapshot(self) -> State:
        """How many elements were given, errors since, and a digest of their places."""
        return {**super().snapshot(), "places": self._numbers.digest(self._given // self.flow.rows)}

    def waits(self) -> bool:
        """Whether another element may need a place that has not come yet."""
        return self._came <= self._gave and self.next_waits()

    def next_waits(self) -> bool:
        """Whether the next place has not come yet."""
        return self._places is not None and self._taker(self._places).waits()

    def close(self) -> None:
        with suppress(ValueError):
            self.at.run.asked.remove(self)
        if self._ahead is not None:
            self._ahead.close()
        super().close()

    def _elements(self, given: int) -> Iterator[Element]:
        """The elements after so many. Nothing is asked for before the first of them is."""
        flow, rows = self.flow, self.flow.rows
        first = _Part(self, 0)
        n = first.source.size // rows
        visits = _Visits(n) if flow.order.redraws else None
        parts = {0: first}
        places = self._places = self._opened()
        try:
            self._skip(places, given // rows, n, visits)
            skip, place = given % rows, self._number(n)
            while place is not None:
                visit = 0 if visits is None else visits.next(place)
                part = parts.pop(visit, None) or _Part(self, visit)
                parts[visit] = part  # as the last one
                part.came, part.following = rows - skip, None
                found = part.source.pick(
                    self._blocks(part, np.arange(place * rows + skip, (place + 1) * rows), n, visits)
                )
                self._gave += skip  # before the state
                skip = 0
                try:
                    while (element := next(found, None)) is not None:
                        self._gave += is_element(element)
                        yield element
                        if self.at.run.stopped.on:
                            return
                finally:
                    close(found)
                place = part.following
                if len(parts) > PARTS:
                    yield from parts.pop(next(iter(parts))).source.changed()
            if skip and not self.at.run.stopped.on:
                raise self._other(f"{given // rows}, which end before the position to continue from")
        finally:
            if self._ahead is None:  # else its thread may be inside
                close(places)
        for part in parts.values():
            yield from part.source.changed()

    def _opened(self) -> Iterator[Any]:
        """The places, from their start.

        Raises:
            PlanError: they come from an iterator, and another pass has taken it.
        """
        order = self.flow.order
        if order.once:
            mine = object()
            order.taken.append(mine)
            if order.taken[0] is not mine:  # of several threads the first has it
                raise PlanError(
                    f"{self.flow.where.step} at {self.flow.where.line} needs places for another pass, got an "
                    "iterator, which gave its places to an earlier one; give pick a list, or a function that returns "
                    "an iterator"
                )
        at = self.at
        return _guarded(order.places, at.epoch, at.run.settings.seed, at.stream("places", "pick"))

    def _skip(self, places: Iterator[Any], count: int, n: int, visits: _Visits | None) -> None:
        """Take the places that were given before a state was taken.

        Raises:
            StateError: they are others.
        """
        for done in range(count):
            place = next(places, _END)
            if place is _END:
                raise self._other(f"{done}, which end before the position to continue from")
            number = self._checked(place, n)
            if visits is not None:
                visits.next(number)
        if self._wanted not in (None, self._numbers.digest(count)):
            raise self._other(
                f"others before the position to continue from; what gives them needs a seed, and has to give those of "
                f"epoch {self.at.epoch} (a function with one argument is told the epoch)"
            )

    def _blocks(self, part: _Part, first: Array, n: int, visits: _Visits | None) -> Iterator[Array]:
        """The indices of the elements of a place, and of those after it that are of the same visit."""
        rows = self.flow.rows
        yield first
        while (place := self._number(n)) is not None:
            if visits is not None:
                if visits.of(place) != part.visit:
                    part.following = place
                    return
                visits.next(place)
            part.came += rows
            yield np.arange(place * rows, (place + 1) * rows)

    def _other(self, found: str) -> StateError:
        """The error for other places than those before the position of a state."""
        where = self.flow.where
        return StateError(
            f"load_state_dict needs the places that the state was taken over, got of {where.step} at {where.line} "
            f"{found}"
        )

    def _number(self, n: int) -> int | None:
        """The next place, None after the last one."""
        assert self._places is not None
        if self._ahead is None and not isinstance(threading.current_thread(), Thread):
            place = next(self._places, _END)
        else:
            place = self._taker(self._places).next()
        if place is not _END:
            number = self._checked(place, n)
            self._came += self.flow.rows
            return number
        if self.flow.order.count not in (self._numbers.count, UNKNOWN_CARDINALITY) and not self.at.run.stopped.on:
            raise self._miscounted(f"only {self._numbers.count}")
        return None

    def _checked(self, place: Any, n: int) -> int:
        """A place as an integer.

        Raises:
            PlanError: it is no integer, an input of `n` lacks it, or it is one too many.
        """
        try:
            number = -1 if isinstance(place, (bool, np.bool_)) else operator.index(place)
        except Exception:  # of the user's class; what it is, is said below
            number = -1
        if not 0 <= number < n:
            raise PlanError(f"pick at {self.flow.where.line} needs places from 0 to {n - 1}, got {brief(place)}")
        self._numbers.add(number, self._given // self.flow.rows)
        if self._numbers.count > self.flow.order.count >= 0:
            raise self._miscounted(f"more than {self.flow.order.count}")
        return number

    def _miscounted(self, found: str) -> PlanError:
        order, line = self.flow.order, self.flow.where.line
        return PlanError(
            f"pick at {line} needs as many places as len() of the {type(order.places).__name__} said, {order.count}, "
            f"got {found}; give pick a function that returns it if its length changes"
        )

    def _taker(self, places: Iterator[Any]) -> _Ahead:
        if self._ahead is None:
            self._ahead = _Ahead(places, self.flow.ahead, self.at.run.stopped)
        return self._ahead


class _Part:
    """The elements of a visit: the first of their places, or a later one, see `Context.in_visit`.

    Args:
        of: the step.
        visit: its number.

    Attributes:
        source: the elements.
        came: elements that belong to places which came, since they were last asked for.
        following: the place that ended that: it is of another visit.
    """

    def __init__(self, of: AskedElements, visit: int) -> None:
        self._of, self.visit = of, visit
        self.came = 0
        self.following: int | None = None
        at = of.at.for_places(self)
        self.source = access(of.flow.source, at.in_visit(visit) if of.flow.order.redraws else at)

    def waits_below(self, taken: int) -> bool:
        """Whether a step below, which has taken so many elements, may need a place that has not come yet."""
        return self.came <= taken and self.following is None and self._of.next_waits()


class _Visits:
    """How often each place came.

    Args:
        n: the number of places.
    """

    def __init__(self, n: int) -> None:
        self._counts: Any = np.zeros(n, np.uint32) if n <= _MOST_COUNTED else defaultdict(int)

    def of(self, place: int) -> int:
        """How often a place came before."""
        return int(self._counts[place])

    def next(self, place: int) -> int:
        """The same, of one that comes now."""
        before = int(self._counts[place])
        self._counts[place] = before + 1
        return before


class _Numbers:
    """The places that came: how many, and digests of the last ones and all before them."""

    def __init__(self) -> None:
        self.count = 0
        self._last = self._first = 0
        self._ahead: deque[int] = deque()  # after each place that came after the `count - len` first

    def add(self, number: int, given: int) -> None:
        """Note the next place; no digest of fewer places than `given` is asked for any more."""
        self.count += 1
        self._last = zlib.crc32(b"%d," % number, self._last)
        self._ahead.append(self._last)
        if self.count - len(self._ahead) < given:
            self._first = self._ahead.popleft()

    def digest(self, count: int) -> int:
        """That of the first `count` places."""
        while self._ahead and self.count - len(self._ahead) < count:
            self._first = self._ahead.popleft()
        return self._first


def _guarded(given: Any, epoch: int, seed: int, stream: Stream) -> Iterator[Any]:
    """The values of the user's object, whose exceptions become errors of the step. No reference leads to the run.

    Closing this closes an iterator that a function made, and one that came from the user as a generator.
    """
    count = 0
    places: Any = None
    try:
        places = places_of(given, epoch, seed)
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
