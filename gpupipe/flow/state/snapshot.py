"""snapshot: where a running chain stands, as data, and how it goes on from there.

Every flow's iterator answers `snapshot()`, and its flow's `open(at, state)` goes on behind such a snapshot. A snapshot
holds places, never payloads: how many elements were taken, which byte comes next, which pass it is. It is a tree of
what JSON knows, and of `Deferred` leaves that become it when somebody asks for the text.

What a step holds (a shuffle buffer, an open window, elements in work) it gets again from its input, see `checkpoints`.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from operator import itemgetter, length_hint
from typing import Any, Generic, TypeVar

import numpy as np

from ...errors import StateError
from ...graph.op import Array
from ..element import Element, Stream
from ..run import SILENT_REPLAY, Context
from ..step import Running, State, close

__all__ = [
    "ENDLESS",
    "Counted",
    "Deferred",
    "Numbered",
    "Numbers",
    "State",
    "Unsupported",
    "as_int",
    "damaged",
    "decode_ints",
    "encode_ints",
    "fast_forward",
    "int_part",
    "part",
    "replayed",
    "start_of",
    "to_json",
]

ENDLESS = 1 << 62


_T = TypeVar("_T")


_first = itemgetter(0)


class Deferred(ABC):
    """A part of a snapshot that costs more to write down than to take."""

    def cost(self) -> int:
        """What it costs to take, in parts of a snapshot; see `checkpoints.Interval`."""
        return 1

    @abstractmethod
    def json(self) -> Any:
        """What JSON gets."""


@dataclass(frozen=True, slots=True)
class Unsupported(Deferred):
    """A part that cannot be written down: whoever asks for the text is told why."""

    why: str

    def json(self) -> Any:
        raise StateError(self.why)


def to_json(state: State) -> Any:
    """A snapshot as JSON: every `Deferred` leaf written down."""
    if isinstance(state, Deferred):
        return to_json(state.json())
    if isinstance(state, dict):
        return {key: to_json(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [to_json(value) for value in state]
    return state


def part(state: State, name: str = "source") -> State:
    """The part of a state that belongs to an input; None where there is no state."""
    return None if state is None else state[name]


def int_part(state: State, name: str) -> int:
    """A number >= 0 of a state."""
    return as_int(part(state, name), name)


def as_int(value: Any, name: str) -> int:
    """The same of a value.

    Raises:
        StateError: it is none.
    """
    if type(value) is not int or not 0 <= value <= ENDLESS:
        raise StateError(f"load_state_dict needs a number >= 0 for {name}, got {value!r}"[:200])
    return value


def start_of(state: State) -> int:
    """The byte offset at which a reader begins: that of the block of a state, else 0."""
    return 0 if state is None else int_part(state, "block")


def fast_forward(items: Iterator[Any], count: int, at: Context) -> None:
    """Take elements that were delivered before and forget them."""
    if not count:
        return
    before = SILENT_REPLAY.get()
    try:
        SILENT_REPLAY.set(True)
        stopped = at.run.stopped
        while count > 0 and not stopped.is_set():
            some = min(count, 4096)
            taken = sum(1 for _ in islice(items, some))
            if taken < some and not stopped.is_set():
                raise StateError(
                    f"load_state_dict needs the data that the state was taken over: the input ends {count - taken} "
                    f"elements before it"
                )
            count -= taken
    finally:
        SILENT_REPLAY.set(before)


class Numbers(Generic[_T]):
    """Counts what passes, in C: 50 ns an item.

    Attributes:
        pairs: the items with their numbers.
        items: the items themselves.
    """

    __slots__ = ("_left", "items", "pairs")

    def __init__(self, items: Iterable[_T], done: int = 0) -> None:
        self._left = iter(range(done, ENDLESS))
        self.pairs: Iterator[tuple[_T, int]] = zip(items, self._left, strict=False)
        self.items: Iterator[_T] = map(_first, self.pairs)

    @property
    def count(self) -> int:
        """How many have passed."""
        return ENDLESS - length_hint(self._left)


class Counted(Running):
    """An iterator whose state is how many elements it gave: to come back there, it gives them again.

    Args:
        items: the elements.
        inner: what to close.
        done: elements that were given before.
    """

    def __init__(self, items: Iterator[Element], inner: Any = None, done: int = 0) -> None:
        self._numbers = Numbers(items, done)
        super().__init__(self._numbers.items)
        self._inner = items if inner is None else inner

    def snapshot(self) -> State:
        """How many elements were given."""
        return {"n": self._numbers.count}

    def close(self) -> None:
        """Close what is below."""
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
        """The next position: how many elements were given, from the first one on."""
        return ENDLESS - length_hint(self._positions)

    def snapshot(self) -> State:
        """The next position."""
        return {"n": self.position()}


def replayed(open_: Callable[[], Iterator[Element]], at: Context, state: State) -> Running:
    """An iterator that comes back to a place by giving everything before it again."""
    items = Counted(open_())
    if state is not None:
        fast_forward(iter(items), int_part(state, "n"), at)
    return items


MOST = 1 << 27
"""Bytes of the text of one buffer: a state is read from a file that may be anything."""


def encode_ints(numbers: Sequence[int] | Array) -> State:
    """Integers >= 0 as text: of 1 to 8 bytes each, little-endian, base64."""
    array = np.array(numbers, np.uint64)
    width = max(1, -(-int(array.max()).bit_length() // 8)) if len(array) else 1
    data = array.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width]
    return [width, base64.b64encode(data.tobytes()).decode()]


def decode_ints(state: State) -> list[int]:
    """The integers of such a text.

    Raises:
        StateError: it is none.
    """
    match state:
        case [int(width), str(text)] if type(width) is int and 1 <= width <= 8 and len(text) <= MOST:
            data = base64.b64decode(text, validate=True)
            full = np.zeros((len(data) // width, 8), np.uint8)
            full[:, :width] = np.frombuffer(data, np.uint8).reshape(-1, width)
            numbers: list[int] = full.view("<u8").ravel().tolist()
            return numbers
        case _:
            raise damaged()


def damaged() -> StateError:
    """The error of a text that no state is written in."""
    return StateError("load_state_dict needs a state as state_dict made it, got one whose numbers are damaged")
