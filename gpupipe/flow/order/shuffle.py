"""shuffle: a uniform choice from a buffer, with tf.data's buffer semantics and gpupipe's own numbers.

The buffer is full before the first element leaves; output p holds an element of input index <= p + size - 1. Draws
depend on (seed, epoch, place in the chain) and on how many elements left before, on nothing else.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np

from ...errors import StateError
from ...plan.order import buffer_name
from ...random import BatchRng, hash64, mix64
from ..access import Access, kept, passes
from ..element import Element, Raised, keep
from ..memory import bytes_of_all
from ..run import Context, Flow
from ..stall import SOMEWHERE, Where
from ..state.arrivals import Begins
from ..state.buffer import Held, held_json, is_record
from ..state.checkpoints import Place, Tape, chosen
from ..state.snapshot import Late, State, below, integers_json, number, parts_of, these_integers
from ..step import Running, close
from ..words import WordStream
from .repeat import EmptyPasses

__all__ = ["ShuffleFlow", "shuffled_order"]

_NOTHING: Any = (None, 0)


@dataclass(frozen=True, slots=True)
class ShuffleFlow:
    """Elements in another order.

    Attributes:
        size: of the buffer, in elements.
        seed: of this node, mixed with the chain's.
        reshuffle: False gives the same order in every epoch and pass.
        repeat: passes of the fused repeat, negative for endless, 1 where there is none.
        where: it is in the chain.
    """

    source: Flow
    size: int
    seed: int | None
    reshuffle: bool = True
    repeat: int = 1
    where: Where = SOMEWHERE

    def open(self, at: Context, state: State = None) -> Running:
        return Shuffled(self, at, state)

    def access(self, at: Context) -> Access:
        """A shuffle of file names, which are few: the only buffer that has places."""
        once = replace(self, repeat=1)
        if self.repeat == 1:
            return kept(list(once.open(at)))
        return passes(lambda j: kept(list(once.open(at.in_pass(j, self.repeat)))), self.repeat)


class Pass:
    """The buffer of one pass and where it is filled from.

    Attributes:
        ring: the buffer; element i of it is at (start + i) % size.
        numbers: of these elements in the input, at the same places.
        start: below `size`.
        steady: the ring has its full size and one free slot, the one before `start`: each element that comes sends one
            away, see `Shuffled`.
        last: nothing comes any more, neither into this buffer nor behind it.
    """

    __slots__ = (
        "_pruned", "at", "count", "draws", "last", "more", "numbers", "pairs", "passing", "ring", "size", "start",
        "steady", "stopped", "tape",
    )  # fmt: skip

    def __init__(self, flow: ShuffleFlow, at: Context, state: State = None) -> None:
        self.at = at
        self.stopped = at.run.stopped.is_set
        self.draws = WordStream(at, flow.seed, flow.reshuffle, "shuffle")
        self.size = flow.size
        # Grown as it fills: shuffle(10**9) of a small dataset means "all of it", not a gigabyte of empty slots.
        self.ring: list[Any] = []
        self.numbers = array("q")
        self.start = 0
        self.count = 0
        self.more = True
        self.steady = False
        self.last = False
        self.passing: list[tuple[Element, int]] = []  # errors on their way to the user: never part of the buffer
        self._pruned = 16
        self.tape = Tape(flow.source, at, below(state, "input"))
        self.pairs = self.tape.pairs
        if state is not None:
            self._resume(state)

    def _resume(self, state: State) -> None:
        """Fill the buffer with what it held: records by their places, others by reading the input once more."""
        self.draws.resume(below(state, "draws"))
        self.more = bool(below(state, "more"))
        held, passing = Held.of(below(state, "held")), these_integers(below(state, "passing"))
        begin, end = self.tape.count, self.tape.count + number(state, "taken")
        wanted = [begin + place for place in (*held.others.values(), *passing)]
        if any(place >= end for place in wanted):
            raise StateError("load_state_dict needs a state of this chain, got one whose shuffle is ahead of itself")
        found = chosen(self.tape.items, wanted, begin, end, self.at)
        if len(found) < len(set(wanted)):  # stopped
            return
        others = {place: (keep(found[begin + place]), begin + place) for place in held.others.values()}
        kept = held.elements(others, self.at)
        self.ring = [element for element, _ in kept]
        self.numbers = array("q", [place for _, place in kept])
        self.passing = [(found[begin + place], begin + place) for place in passing]
        if len(self.ring) > self.size:
            raise StateError(f"load_state_dict needs a state of a buffer of {self.size}, got {len(self.ring)} elements")
        self.count = len(self.ring)
        if self.more and self.count == self.size - 1:
            self.ring.append(None)
            self.numbers.append(-1)
            self.steady = self.count > 0
        if not self.more:
            self.end()

    def snapshot(self) -> State:
        """What the buffer holds, by the places of records or by numbers in the input; written down when asked.

        Elements that are no records are not kept: theirs may be large, and leave before the snapshot does.
        """
        ring, numbers, start, count = self.ring, self.numbers, self.start, self.count
        elements = ([*ring[start:], *ring[:start]])[:count]
        places = (numbers[start:] + numbers[:start])[:count]
        first = next((element for element in elements if type(element[0]) is tuple), None)
        records = elements if first is not None and is_record(first) else None
        passing = [place for _, place in self.passing]
        return _Held(records, places, passing, self.tape.here(not self.more), self.draws.snapshot())

    def mark(self) -> None:
        """Mark the place in the input, from time to time, so that not everything has to be read again."""
        tape = self.tape
        if not self.more or not tape.due():
            return
        tape.mark()
        if tape.marks > self._pruned:
            places = self._places()
            tape.forget(min((place for place in places if place >= 0), default=tape.count))
            self._pruned = max(16, 2 * tape.marks)

    def _places(self) -> Iterable[int]:
        """The numbers of the elements in the buffer; -1 for empty places, and for records that need none."""
        return (-1 if element is None else number for element, number in zip(self.ring, self.numbers, strict=True))

    def fill(self, limit: int) -> None:
        """Take at most `limit` elements from the input, as many as there is room for."""
        size, stopped = self.size, self.stopped
        limit = min(limit, size - self.count)
        if limit <= 0 or not self.more:
            return
        ring, numbers = self.ring, self.numbers
        slot = self.start + self.count
        for element, place in self.pairs:
            value = element[0]
            if type(value) is not tuple:
                if type(value) is Raised:
                    self.passing.append((element, place))
                    return
            else:
                for column in value:
                    if type(column) is memoryview:
                        element = keep(element)
                        break
            if slot >= size:
                slot -= size
            if slot == len(ring):
                ring.append(element)
                numbers.append(place)
            else:
                ring[slot] = element
                numbers[slot] = place
            slot += 1
            self.count += 1
            limit -= 1
            if stopped():
                break
            if not limit:
                return
        self.end()

    def pop(self) -> Element:
        """Choose one of the elements in the buffer."""
        ring, numbers, start, size, count = self.ring, self.numbers, self.start, self.size, self.count
        slot = start + (self.draws.left or self.draw()).pop() % count
        if slot >= size:
            slot -= size
        element: Element = ring[slot]
        ring[slot] = ring[start]
        ring[start] = None
        numbers[slot] = numbers[start]
        self.start = start + 1 if start + 1 < size else 0
        self.count = count = count - 1
        self.steady = self.more and count == size - 1
        return element

    def draw(self) -> list[int]:
        """More words, and perhaps a mark: this is called once in some elements."""
        self.mark()
        return self.draws.more()

    def end(self) -> None:
        """There is nothing more to fill from."""
        self.more = self.steady = False
        close(self.tape.inner)


@dataclass(frozen=True, slots=True)
class _Held(Late):
    """A buffer as it was."""

    records: list[Element] | None
    places: array[int]
    passing: list[int]
    place: Place
    draws: State

    def json(self) -> State:
        records: Iterable[Element | None] = repeat(None) if self.records is None else self.records
        entries = list(zip(records, self.places, strict=False))
        numbers = [place for element, place in entries if element is None or not is_record(element)]
        count, more = self.place.count, self.place.now is not None
        begin = min((*numbers, *self.passing), default=count)
        source = self.place.state(begin) if more or begin < count else {"at": count, "mark": None, "drop": 0}
        return {
            "input": source,
            "taken": count - begin,
            "held": held_json(entries, begin),
            "passing": integers_json([place - begin for place in self.passing]),
            "draws": self.draws,
            "more": more,
        }


class Shuffled(Running):
    """The running shuffle. With a fused repeat the next pass fills while the last one drains; passes never mix."""

    def __init__(self, flow: ShuffleFlow, at: Context, state: State = None) -> None:
        self._flow = flow
        self._at = at
        self._ahead: Pass | None = None
        self._pass: Pass | None = None
        self._begins = Begins(at, below(state, "begins"))
        self._empty = EmptyPasses(flow.where, flow.repeat < 0, at, 1 if state is None else number(state, "empty"))
        if state is None:
            self._opened = 0
            self._pass = self._next_pass()
        else:
            now, ahead = parts_of(state, "passes", 2)
            self._opened = number(state, "opened") - (now is not None) - (ahead is not None)
            self._pass = None if now is None else self._next_pass(now)
            self._ahead = None if ahead is None else self._next_pass(ahead)
        at.run.holds(self, f"shuffle({buffer_name(flow.size)})")

    def _next_pass(self, state: State = None) -> Pass | None:
        if self._opened == self._flow.repeat:
            return None
        at = self._at.in_pass(self._opened, self._flow.repeat)
        self._opened += 1
        if state is not None:
            return Pass(self._flow, at, state)
        opened = Pass(self._flow, at, self._begins.next())
        self._begins.opened(opened)
        return opened

    def snapshot(self) -> State:
        """The buffers of this pass and of the one that is being filled, and how many in a row had no element."""
        passes = [None if one is None else one.snapshot() for one in (self._pass, self._ahead)]
        begins, empty = self._begins.snapshot(), self._empty.count
        return {"opened": self._opened, "empty": empty, "passes": passes, "begins": begins}

    def __next__(self) -> Element:
        now = self._pass
        if now is not None and now.steady:  # what the loop below does, for one that comes and one that leaves
            element, place = _NOTHING if now.stopped() else next(now.pairs, _NOTHING)
            if element is None:
                now.end()
            else:
                value = element[0]
                if type(value) is not tuple:
                    if type(value) is Raised:
                        passed: Element = element
                        return passed
                else:
                    for column in value:
                        if type(column) is memoryview:
                            element = keep(element)
                            break
                ring, numbers, start, size, draws = now.ring, now.numbers, now.start, now.size, now.draws
                ring[start - 1] = element
                chosen_slot = start + (draws.left or now.draw()).pop() % size
                if chosen_slot >= size:
                    chosen_slot -= size
                leaving: Element = ring[chosen_slot]
                ring[chosen_slot] = ring[start]
                ring[start] = None
                numbers[start - 1] = place
                numbers[chosen_slot] = numbers[start]
                now.start = start + 1 if start + 1 < size else 0
                return leaving
        elif now is not None and now.last and now.count:
            return now.pop()
        while (now := self._pass) is not None:
            if now.more and now.count < now.size:
                now.fill(now.size)
            if now.passing:
                return now.passing.pop(0)[0]
            if now.count:
                self._empty.count = 0
                if not now.more:
                    self._fill_ahead()
                    now.last = self._ahead is None
                return now.pop()
            self._pass = None
            if not self._empty.another():
                break
            self._pass, self._ahead = self._ahead or self._next_pass(), None
            self._empty.count += 1
        raise StopIteration

    def held(self) -> tuple[int, int]:
        """Elements in the buffer, and their bytes."""
        slots = [slot for one in (self._pass, self._ahead) if one is not None for slot in list(one.ring)]
        return bytes_of_all(slots)

    def _fill_ahead(self) -> None:
        if self._ahead is None:
            self._ahead = self._next_pass()
        if self._ahead is not None:
            self._ahead.fill(2)

    def close(self) -> None:
        """Close the inputs."""
        for one in (self._pass, self._ahead):
            if one is not None:
                close(one.tape.inner)
        self._pass = self._ahead = None


def shuffled_order(count: int, seed: int, epoch: int, key: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A permutation of range(count) that depends on (seed, epoch, key) only."""
    keys = BatchRng(seed, epoch, np.arange(count, dtype=np.uint64), mix64(key, hash64("order")) & 0xFFFF_FFFF).words(2)
    return np.lexsort((np.arange(count), keys[:, 1], keys[:, 0])).astype(np.int64)
