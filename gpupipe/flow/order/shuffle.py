"""shuffle: a uniform choice from a buffer, with tf.data's buffer semantics and gpupipe's own numbers.

The buffer is full before the first element leaves; output p holds an element of input index <= p + size - 1. Draws
depend on (seed, epoch, place in the chain) and on how many elements left before, on nothing else.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...plan.order import buffer_name
from ...random import BatchRng, hash64, mix64
from ..access import RandomAccess, from_list, passes
from ..element import Element, Raised, keep
from ..memory import bytes_of_all
from ..run import Context, Flow
from ..stall import SOMEWHERE, Where
from ..state.buffer import is_record
from ..state.checkpoints import EVERY, CheckpointedInput
from ..state.snapshot import State, int_part, part
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

    def access(self, at: Context) -> RandomAccess:
        """A shuffle of file names, which are few: the only buffer that has places."""
        once = replace(self, repeat=1)
        if self.repeat == 1:
            return from_list(list(once.open(at)))
        return passes(lambda j: from_list(list(once.open(at.in_pass(j, self.repeat)))), self.repeat)


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
        "_pruned", "_step", "count", "draws", "input", "last", "more", "numbers", "pairs", "passing", "ring", "size",
        "start", "steady", "stopped",
    )  # fmt: skip

    def __init__(self, flow: ShuffleFlow, at: Context, state: State = None) -> None:
        self._step = f"shuffle({buffer_name(flow.size)})"
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
        # A resume that reads again reads a buffer's worth at least; an eighth more of it costs little.
        self.input = CheckpointedInput(flow.source, at, part(state), every=max(EVERY, flow.size // 8))
        self.pairs = self.input.pairs
        if state is not None:
            self._resume(state)

    def _resume(self, state: State) -> None:
        """Fill the buffer with what it held."""
        self.draws.resume(state["draws"])
        self.more = bool(state["more"])
        held = self.input.recovered
        self.count = max(len(held) - int_part(state, "passing"), 0)  # there are none if the run is stopped
        self.passing = held[self.count :]
        self.ring = [keep(element) for element, _ in held[: self.count]]
        self.numbers = array("q", [place for _, place in held[: self.count]])
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
        if records is not None:
            records += [element for element, _ in self.passing]
        places.extend(place for _, place in self.passing)
        return {
            "source": self.input.holding(places, records, not self.more, self._step),
            "passing": len(self.passing),
            "draws": self.draws.snapshot(),
            "more": self.more,
        }

    def checkpoint(self) -> None:
        """Take a checkpoint of the input, from time to time, so that not everything has to be read again."""
        source = self.input
        if not self.more or not source.due():
            return
        source.checkpoint(0)
        if source.checkpoints > self._pruned:
            # None is an empty place, and -1 a record, which needs no number.
            held = (place for element, place in zip(self.ring, self.numbers, strict=True) if element is not None)
            source.discard_before(min((place for place in held if place >= 0), default=source.count))
            self._pruned = max(16, 2 * source.checkpoints)

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
        """More words, and perhaps a checkpoint: this is called once in some elements."""
        self.checkpoint()
        return self.draws.more()

    def end(self) -> None:
        """There is nothing more to fill from."""
        self.more = self.steady = False
        close(self.input.inner)


class Shuffled(Running):
    """The running shuffle. With a fused repeat the next pass fills while the last one drains; passes never mix."""

    def __init__(self, flow: ShuffleFlow, at: Context, state: State = None) -> None:
        self._flow = flow
        self._at = at
        self._ahead: Pass | None = None
        self._pass: Pass | None = None
        self._empty = EmptyPasses(flow.where, flow.repeat < 0, at, 1 if state is None else int_part(state, "empty"))
        if state is None:
            self._opened = 0
            self._pass = self._next_pass()
        else:
            now, ahead = state["passes"]
            self._opened = int_part(state, "opened") - (now is not None) - (ahead is not None)
            self._pass = None if now is None else self._next_pass(now)
            self._ahead = None if ahead is None else self._next_pass(ahead)
        at.run.track_buffer(self, f"shuffle({buffer_name(flow.size)})")

    def _next_pass(self, state: State = None) -> Pass | None:
        if self._opened == self._flow.repeat:
            return None
        at = self._at.in_pass(self._opened, self._flow.repeat)
        self._opened += 1
        return Pass(self._flow, at, state)

    def snapshot(self) -> State:
        """The buffers of this pass and of the one that is being filled, and how many in a row had no element."""
        passes = [None if one is None else one.snapshot() for one in (self._pass, self._ahead)]
        return {"opened": self._opened, "empty": self._empty.count, "passes": passes}

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
        return self._filled()

    def _filled(self) -> Element:
        """The next element, after the buffer was filled as far as it can be."""
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

    def buffer_usage(self) -> tuple[int, int]:
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
                close(one.input.inner)
        self._pass = self._ahead = None


def shuffled_order(count: int, seed: int, epoch: int, key: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A permutation of range(count) that depends on (seed, epoch, key) only."""
    keys = BatchRng(seed, epoch, np.arange(count, dtype=np.uint64), mix64(key, hash64("order")) & 0xFFFF_FFFF).words(2)
    return np.lexsort((np.arange(count), keys[:, 1], keys[:, 0])).astype(np.int64)
