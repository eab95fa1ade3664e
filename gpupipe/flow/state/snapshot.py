"""snapshot: the position of a running chain as data, and how it resumes from there.

Every running step has `snapshot()`, and its flow's `open(at, state)` resumes after such a snapshot. A snapshot holds
positions, never payloads: how many elements were taken, which byte comes next, which pass it is. It is a tree of JSON
values and of `Deferred` leaves, which become JSON when the text is asked for.

Elements that a step holds (a shuffle buffer, an open window, elements in work) are read again from its input, see
`checkpoints`.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from itertools import islice, repeat
from operator import itemgetter, length_hint
from typing import Any

import numpy as np

from ...classes import dataclass
from ...errors import StateError
from ...graph.op import Array
from ..element import Element, Raised, Stream
from ..run import SILENT_REPLAY, Context
from ..step import Running, State, close

__all__ = [
    "ENDLESS",
    "Counted",
    "Deferred",
    "Numbered",
    "Numbers",
    "Since",
    "State",
    "Unsupported",
    "as_int",
    "check_count",
    "corrupt_state",
    "decode_ints",
    "encode_ints",
    "fast_forward",
    "int_part",
    "part",
    "replayed",
    "to_json",
    "written",
]

ENDLESS = 1 << 62


_first = itemgetter(0)


class Deferred(ABC):
    """A part of a snapshot that costs more to write out than to take."""

    def cost(self) -> int:
        """The cost of taking it, in parts of a snapshot; see `checkpoints.Interval`."""
        return 1

    @abstractmethod
    def json(self) -> Any:
        """The part as JSON values and `Deferred` leaves."""


@dataclass(frozen=True, slots=True)
class Unsupported(Deferred):
    """A part that cannot be written out: `to_json` raises a StateError that says why."""

    why: str

    def json(self) -> Any:
        raise StateError(self.why)


@dataclass(frozen=True, slots=True)
class Since(Deferred):
    """Says that a state needs the bad elements from this number on, see `FoundBad`; `oldest` collects the numbers."""

    number: int

    def cost(self) -> int:
        return 0

    def json(self) -> Any:
        needed = NEEDED.get()
        if needed is not None:
            needed.append(self.number)
        return 0


NEEDED: ContextVar[list[int] | None] = ContextVar("gpupipe_needed", default=None)
"""Collects what the `Since` leaves of a state say while it is written out."""


def written(state: State) -> tuple[Any, int | None]:
    """A snapshot as JSON, and the number of the first bad element that it needs; None if it needs none."""
    needed: list[int] = []
    before = NEEDED.get()
    try:
        NEEDED.set(needed)
        return to_json(state), min(needed, default=None)
    finally:
        NEEDED.set(before)


def to_json(state: State) -> Any:
    """A snapshot as JSON, with every `Deferred` leaf written out."""
    if isinstance(state, Deferred):
        return to_json(state.json())
    if isinstance(state, dict):
        return {key: to_json(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [to_json(value) for value in state]
    return state


def part(state: State, name: str = "source") -> State:
    """A part of a state, by default that of the input; None if there is no state."""
    return None if state is None else state[name]


def int_part(state: State, name: str, most: int = -1) -> int:
    """A part of a state that is an integer >= 0, and at most `most` if that is not negative.

    Raises:
        StateError: it is not.
    """
    return as_int(part(state, name), name, most)


def as_int(value: Any, name: str, most: int = -1) -> int:
    """A value of a state that is an integer >= 0, and at most `most` if that is not negative; `name` is for messages.

    Raises:
        StateError: it is not.
    """
    if type(value) is not int or not 0 <= value <= (ENDLESS if most < 0 else most):
        wanted = "number >= 0" if most < 0 else f"number from 0 to {most}"
        raise StateError(f"load_state_dict needs a {wanted} for {name}, got {value!r}"[:200])
    return value


MOST_SKIPPED = 1 << 40
"""Elements that a resume may make again, more than any epoch has: a damaged state would make them for years."""


def check_count(count: int) -> None:
    """Refuse a number of elements to make again that no state can mean.

    Raises:
        StateError: there are too many.
    """
    if count > MOST_SKIPPED:
        raise StateError(f"load_state_dict needs a state as state_dict made it, got one with {count} elements to skip")


def fast_forward(items: Iterator[Any], count: int, at: Context) -> None:
    """Take and discard `count` elements that were delivered before.

    Raises:
        StateError: there are fewer.
    """
    if not count:
        return
    check_count(count)
    before = SILENT_REPLAY.get()
    try:
        SILENT_REPLAY.set(True)
        stopped = at.run.stopped
        while count > 0 and not stopped.on:
            some, taken = min(count, 4096), 0
            for element in islice(items, some):
                taken += 1
                if type(element[0]) is Raised and element[0].error.lost:
                    at.run.need(element, "what follows")
            if taken < some and not stopped.on:
                raise StateError(
                    f"load_state_dict needs the data that the state was taken over, got an input that ends "
                    f"{count - taken} elements before it"
                )
            count -= taken
    finally:
        SILENT_REPLAY.set(before)


class Numbers:
    """Counts elements as they pass, in C: 50 ns each.

    Attributes:
        pairs: the elements with their numbers.
        items: the elements themselves.
    """

    __slots__ = ("_left", "items", "pairs")

    def __init__(self, items: Iterable[Element], done: int = 0) -> None:
        self._left = iter(range(done, ENDLESS))
        self.pairs: Iterator[tuple[Element, int]] = zip(items, self._left, strict=False)
        self.items: Iterator[Element] = map(_first, self.pairs)

    @property
    def count(self) -> int:
        """The number of elements that have passed."""
        return ENDLESS - length_hint(self._left)


class Counted(Running):
    """A running step whose state is the number of elements that it gave.

    Args:
        items: the elements, closed with the step.
        done: elements that were given before.
        again: a resume makes all of them again, not only those that follow.
    """

    def __init__(self, items: Iterator[Element], done: int = 0, again: bool = False) -> None:
        self._numbers = Numbers(items, done)
        super().__init__(self._numbers.items)
        self._inner = items
        self._again = again

    def snapshot(self) -> State:
        count = self._numbers.count
        return {"n": count, "bad": Since(0)} if self._again and count else {"n": count}

    def close(self) -> None:
        close(self._inner)


class Numbered(Running):
    """Rows of one stream as elements, their positions counted in C.

    Args:
        rows: the columns of each element.
        stream: of all of them.
        done: the first position.
    """

    def __init__(self, rows: Iterable[Any], stream: Stream, done: int = 0) -> None:
        self._positions = iter(range(done, ENDLESS))
        super().__init__(zip(rows, repeat(stream), self._positions))

    def position(self) -> int:
        """The next position, which is the number of elements given since the start of the pass."""
        return ENDLESS - length_hint(self._positions)

    def snapshot(self) -> State:
        return {"n": self.position()}


def replayed(open_: Callable[[], Iterator[Element]], at: Context, state: State) -> Running:
    """A running step that resumes by making all elements before its position again."""
    items = Counted(open_(), again=True)
    if state is not None:
        fast_forward(iter(items), int_part(state, "n"), at)
    return items


MOST = 1 << 27
"""Most bytes in the text of one buffer: a state is read from a file, which may hold anything."""


def encode_ints(numbers: Sequence[int] | Array) -> State:
    """Write integers >= 0 as text: the bytes of each (1 to 8, little-endian) in base64."""
    array = np.array(numbers, np.uint64)
    width = max(1, -(-int(array.max()).bit_length() // 8)) if len(array) else 1
    data = array.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width]
    return [width, base64.b64encode(data.tobytes()).decode()]


def decode_ints(state: State) -> list[int]:
    """Read the integers that `encode_ints` wrote.

    Raises:
        StateError: the text has another form.
    """
    match state:
        case [int(width), str(text)] if type(width) is int and 1 <= width <= 8 and len(text) <= MOST:
            data = base64.b64decode(text, validate=True)
            full = np.zeros((len(data) // width, 8), np.uint8)
            full[:, :width] = np.frombuffer(data, np.uint8).reshape(-1, width)
            numbers: list[int] = full.view("<u8").ravel().tolist()
            return numbers
        case _:
            raise corrupt_state()


def corrupt_state() -> StateError:
    """The error of a state whose text cannot be decoded."""
    return StateError("load_state_dict needs a state as state_dict made it, got one whose numbers are damaged")
