"""shuffle: a uniform choice from a buffer, with tf.data's buffer semantics and gpupipe's own random numbers.

The buffer is full before the first element leaves; output p has an input index <= p + size - 1. Draws depend only on
(seed, epoch, context in the chain) and on how many elements left before.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import numpy as np

from ...classes import dataclass
from ...plan.order import buffer_name
from ...random import BatchRng, hash64, mix64
from ..access import RandomAccess, from_list, passes
from ..buffer_sizes import bytes_of_all
from ..element import Element, Raised
from ..own_bytes import keep
from ..run import Context, Flow
from ..stall import SOMEWHERE, Where
from ..state.buffer import is_record
from ..state.checkpoints import EVERY, CheckpointedInput
from ..state.snapshot import State, as_int, int_part, part
from ..step import Running, close
from ..words import WordStream
from .repeat import EmptyPasses

__all__ = ["ShuffleFlow", "shuffled_order"]

_NOTHING: Any = (None, 0)


@dataclass(frozen=True, slots=True)
class ShuffleFlow:
    """The elements of the input in a random order.

    Attributes:
        size: of the buffer, in elements.
        seed: of this node, mixed with the chain's.
        reshuffle: False gives the same order in every epoch and pass.
        repeat: passes of the fused repeat; negative for no end, 1 without a repeat.
        where: the step in the chain, for messages.
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
        """The shuffled elements as a list: by index only file names are shuffled this way, which are few."""
        once = replace(self, repeat=1)
        return passes(lambda j: from_list(list(once.open(at.in_pass(j, self.repeat)))), self.repeat)


class Pass:
    """The buffer of one pass and its input.

    Attributes:
        ring: the buffer; its element i is in slot (start + i) % size.
        numbers: of these elements in the input, in the same slots.
        start: slot of the first element, below `size`.
        steady: the ring has its full size and one free slot, the one before `start`: one element comes for each that
            leaves, see `Shuffled`.
        last: no more elements come, neither in this pass nor in a later one.
    """

    __slots__ = (
        "_pruned", "_step", "count", "draws", "input", "last", "more", "numbers", "pairs", "passing", "ring", "size",
        "start", "steady", "stopped",
    )  # fmt: skip

    def __init__(self, flow: ShuffleFlow, at: Context, state: State = None) -> None:
        self._step = f"shuffle({buffer_name(flow.size)})"
        self.stopped = at.run.stopped
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
        self.passing: list[tuple[Element, int]] = []  # `Raised` items: never part of the buffer
        self._pruned = 16
        # A resume that reads again reads a buffer's worth at least; an eighth more of it costs little.
        self.input = CheckpointedInput(flow.source, at, part(state), every=max(EVERY, flow.size // 8))
        self.pairs = self.input.pairs
        if state is not None:
            self._resume(state)

    def _resume(self, state: State) -> None:
        """Restore the buffer of a state."""
        self.draws.resume(state["draws"])
        self.more = bool(state["more"])
        held = self.input.recovered
        self.count = max(len(held) - int_part(state, "passing"), 0)  # `held` is empty if the run is stopped
        self.passing = held[self.count :]
        self.ring = [keep(element) for element, _ in held[: self.count]]
        self.numbers = array("q", [number for _, number in held[: self.count]])
        if self.more and self.count == self.size - 1:
            self.ring.append(None)
            self.numbers.append(-1)
            self.steady = self.count > 0
        if not self.more:
            self.end()

    def snapshot(self) -> State:
        """The elements in the buffer, records by offset and others by number; written out on demand.

        The snapshot references records only: other elements may be large, and it may live longer than they do.
        """
        ring, start, count = self.ring, self.start, self.count
        elements = ([*ring[start:], *ring[:start]])[:count]
        numbers = (self.numbers[start:] + self.numbers[:start])[:count]
        first = next((element for element in elements if type(element[0]) is tuple), None)
        records = elements if first is not None and is_record(first) else None
        if records is not None:
            records += [element for element, _ in self.passing]
        numbers.extend(number for _, number in self.passing)
        return {
            "source": self.input.holding(numbers, records, not self.more, self._step),
            "passing": len(self.passing),
            "draws": self.draws.snapshot(),
            "more": self.more,
        }

    def checkpoint(self) -> None:
        """Take a checkpoint of the input if one is due."""
        source = self.input
        if not self.more or not source.due():
            return
        source.checkpoint(0)
        if source.checkpoints > self._pruned:
            # None is an empty slot, and -1 a recovered record, which needs no number.
            held = (number for element, number in zip(self.ring, self.numbers, strict=True) if element is not None)
            source.discard_before(min((number for number in held if number >= 0), default=source.count))
            self._pruned = max(16, 2 * source.checkpoints)

    def fill(self, limit: int) -> None:
        """Take at most `limit` elements from the input, and no more than there is room for."""
        size, stopped = self.size, self.stopped
        limit = min(limit, size - self.count)
        if limit <= 0 or not self.more:
            return
        ring, numbers = self.ring, self.numbers
        slot = self.start + self.count
        for element, number in self.pairs:
            value = element[0]
            if type(value) is not tuple:
                if type(value) is Raised:
                    self.passing.append((element, number))
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
                numbers.append(number)
            else:
                ring[slot] = element
                numbers[slot] = number
            slot += 1
            self.count += 1
            limit -= 1
            if stopped.on:
                break
            if not limit:
                return
        self.end()

    def pop(self) -> Element:
        """Remove a random element from the buffer."""
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
        """More random words, after a checkpoint if one is due: words run out once in 128 elements."""
        self.checkpoint()
        return self.draws.more()

    def end(self) -> None:
        """Note that the input has ended, and close it."""
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
            opened = int_part(state, "opened", flow.repeat) - (now is not None) - (ahead is not None)
            self._opened = as_int(opened, "opened")
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
        """The buffers of this pass and of the next one, the passes opened, and how many in a row had no element."""
        passes = [None if one is None else one.snapshot() for one in (self._pass, self._ahead)]
        return {"opened": self._opened, "empty": self._empty.count, "passes": passes}

    def __next__(self) -> Element:
        now = self._pass
        if now is not None and now.steady:  # `fill` and `pop` for one element, inlined for speed
            element, number = _NOTHING if now.stopped.on else next(now.pairs, _NOTHING)
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
                numbers[start - 1] = number
                numbers[chosen_slot] = numbers[start]
                now.start = start + 1 if start + 1 < size else 0
                return leaving
        elif now is not None and now.last and now.count:
            return now.pop()
        return self._filled()

    def _filled(self) -> Element:
        """The next element, after filling the buffer as far as possible."""
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
        for one in (self._pass, self._ahead):
            if one is not None:
                close(one.input.inner)
        self._pass = self._ahead = None


def shuffled_order(count: int, seed: int, epoch: int, key: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A permutation of range(count) that depends on (seed, epoch, key) only."""
    keys = BatchRng(seed, epoch, np.arange(count, dtype=np.uint64), mix64(key, hash64("order")) & 0xFFFF_FFFF).words(2)
    return np.lexsort((np.arange(count), keys[:, 1], keys[:, 0])).astype(np.int64)
