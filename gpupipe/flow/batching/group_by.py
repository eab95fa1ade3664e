"""group_by: elements gathered by key into datasets, or by length into batches (by size: `image_buckets.py`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import field
from typing import Any

import numpy as np

from ...classes import dataclass
from ...errors import DataError, FunctionError
from ..bad.found import ASKED, bad_element
from ..buffer_sizes import bytes_of_all
from ..element import Element, Hole, identity_of
from ..maps.python_function import PythonFunction
from ..run import SILENT_REPLAY, Context, Flow
from ..state.checkpoints import CheckpointedInput
from ..state.snapshot import State, int_part, part
from ..step import Running
from .gather import gathered
from .stack import batch_of, pad_rows, stack_rows
from .windows import Datasets

__all__ = ["Buckets", "GroupFlow", "Grouping", "Groups"]


class Grouping(ABC):
    """Says which elements meet, how many, and what becomes of them."""

    __slots__ = ()

    @property
    @abstractmethod
    def who(self) -> str:
        """The name of the method, for messages."""

    @abstractmethod
    def key_of(self, element: Element, at: Context) -> tuple[Any, tuple[Any, ...]]:
        """Return the key of an element, and the columns that it gains.

        Raises:
            DataError: the element cannot be in a group.
        """

    @abstractmethod
    def size_of(self, key: Any, element: Element, at: Context) -> int:
        """Return the size of the group that this element starts: the most that the costs of its elements may add up to.

        Raises:
            DataError: the element cannot start a group.
        """

    def cost_of(self, row: Element) -> int:
        """Return what an element adds to its group."""
        return 1

    def full(self, group: Group) -> bool:
        """Whether no element can be added to a group."""
        return group.total >= group.size

    @abstractmethod
    def give(self, key: Any, rows: list[Element], full: bool, at: Context, serial: int) -> Element | None:
        """Return the element that a group becomes; None to leave it out."""


@dataclass(slots=True)
class Group:
    """Elements of one key that wait for more.

    Attributes:
        size: the most that `total` may become.
        total: the costs of the rows.
        rows: the elements, with their numbers in the input.
    """

    size: int
    total: int = 0
    rows: list[tuple[Element, int]] = field(default_factory=list)


def int_of(who: str, what: str, element: Element) -> int:
    """Return the one integer that the user's function returned.

    Raises:
        DataError: the function failed or returned anything else.
    """
    columns = element[0]
    if type(columns) is Hole:
        raise columns.error
    value = columns[0]
    if (
        len(columns) == 1
        and isinstance(value, (np.integer, np.ndarray))
        and value.shape == ()
        and value.dtype.kind in "iu"
    ):
        return int(value)
    got = f"{len(columns)} values" if len(columns) > 1 else f"{type(value).__name__} {value!r}"
    raise FunctionError(f"{who} needs a {what} that returns one integer, got {got}"[:200], stage=who)


@dataclass(frozen=True, slots=True)
class Groups(Grouping):
    """Makes groups (key, dataset), for the function that makes a dataset of each.

    Attributes:
        size: of a group; 0 where `size_fn` is given.
        size_fn: returns the size for a key; called when a group starts.
    """

    key: PythonFunction
    size: int
    size_fn: PythonFunction | None
    datasets: Datasets

    @property
    def who(self) -> str:
        return self.key.who

    def key_of(self, element: Element, at: Context) -> tuple[Any, tuple[Any, ...]]:
        """Return the key of an element: int64, or uint64 where the function returns that.

        Raises:
            DataError: the function failed, or did not return an integer.
        """
        made = self.key(element, at, ASKED)
        key = int_of(self.who, "key_func", made)
        return np.uint64(key) if made[0][0].dtype == np.uint64 else np.int64(key), ()

    def size_of(self, key: Any, element: Element, at: Context) -> int:
        """Return the size of the group that this element starts.

        Raises:
            DataError: the function failed, or did not return an integer >= 1.
        """
        if self.size_fn is None:
            return self.size
        size = int_of(self.who, "window_size_func", self.size_fn(((key,), *element[1:]), at, ASKED))
        if size < 1:
            raise FunctionError(f"{self.who} needs a window_size_func that returns sizes >= 1, got {size} for {key}")
        return size

    def give(self, key: Any, rows: list[Element], full: bool, at: Context, serial: int) -> Element | None:
        """Return the element that a group becomes."""
        return (key, self.datasets.whole(rows, at, serial)), *identity_of(rows[0])


@dataclass(frozen=True, slots=True)
class Buckets(Grouping):
    """Makes batches of elements of similar length.

    Attributes:
        shapes: per leaf the target shape, -1 for the largest of the batch; None pads every dimension to it.
        values: per leaf the padding value.
        to_boundary: -1 means the bucket's boundary - 1.
        pad: False stacks the elements as they are.
        drop: leave out short batches.
    """

    length: PythonFunction
    boundaries: tuple[int, ...]
    sizes: tuple[int, ...]
    shapes: tuple[tuple[int, ...] | None, ...]
    values: tuple[Any, ...]
    names: tuple[str, ...]
    to_boundary: bool = False
    pad: bool = True
    drop: bool = False

    @property
    def who(self) -> str:
        return self.length.who

    def key_of(self, element: Element, at: Context) -> tuple[int, tuple[Any, ...]]:
        """Return the bucket of an element.

        Raises:
            DataError: the function failed, or did not return an integer that some bucket holds.
        """
        who = self.who
        length = int_of(who, "element_length_func", self.length(element, at, ASKED))
        bucket = bisect_right(self.boundaries, length)
        if self.to_boundary and self.pad and bucket == len(self.boundaries):
            raise FunctionError(
                f"{who} needs lengths below the last boundary {self.boundaries[-1]} to pad to it, got {length}"
            )
        return bucket, ()

    def size_of(self, key: int, element: Element, at: Context) -> int:
        """Return the number of rows in a batch of this bucket."""
        return self.sizes[key]

    def give(self, key: int, rows: list[Element], full: bool, at: Context, serial: int) -> Element | None:
        """Return the batch, a hole if it does not stack, or None if it is left out."""
        if self.drop and not full:
            return None
        made = batch_of(rows, lambda i, column: self._leaf(i, column, rows, key))
        if type(made[0]) is Hole:
            made[0].error.stage = self.who
        return made

    def _leaf(self, i: int, column: tuple[Any, ...], rows: list[Element], key: int) -> Any:
        if not self.pad:
            return stack_rows(column, rows, self.names[i], self.who)
        shape = self.shapes[i]
        if self.to_boundary:
            shape = (-1,) * np.ndim(column[0]) if shape is None else shape
            shape = tuple(self.boundaries[key] - 1 if n < 0 else n for n in shape)
        return pad_rows(column, rows, self.names[i], shape, self.values[i])


@dataclass(frozen=True, slots=True)
class GroupFlow:
    """Gathers elements by key; a group leaves when it is full, the rest at the end in ascending order of keys."""

    source: Flow
    groups: Grouping

    def open(self, at: Context, state: State = None) -> Running:
        return gathered(lambda start: _Grouped(self, at, start), at, state)


class _Grouped(Running):
    """Gathers elements by key. Its state has the numbers of those whose group is not full yet."""

    def __init__(self, flow: GroupFlow, at: Context, state: State) -> None:
        self._groups = flow.groups
        self._at = at
        self._input = CheckpointedInput(flow.source, at, part(state), step=flow)
        self._flow = flow
        self._waiting: dict[Any, Group] = {}
        self._number = 0 if state is None else int_part(state, "groups")
        items = at.run.policy().sifted(self._keyed(self._input.items))
        before = SILENT_REPLAY.get()
        try:
            SILENT_REPLAY.set(True)
            for element, number in self._input.recovered:
                for keyed in self._keyed(iter((element,))):
                    if type(keyed[0]) is tuple:
                        self._add(keyed, number)
        finally:
            SILENT_REPLAY.set(before)
        self.source = self._input.inner
        self.items = self._gathered(items)
        at.run.track_buffer(self, self._groups.who)

    def buffer_usage(self) -> tuple[int, int]:
        """Elements that wait in groups, and their bytes."""
        return bytes_of_all(row for group in list(self._waiting.values()) for row, _ in list(group.rows))

    def snapshot(self) -> State:
        """The input's state, the numbers of the elements that are held, and how many groups there were."""
        numbers = [number for group in self._waiting.values() for _, number in group.rows]
        return {"source": self._input.holding(sorted(numbers)), "groups": self._number}

    def _keyed(self, items: Iterator[Element]) -> Iterator[Element]:
        """Yield the elements with their key as a last column; a hole where the key function failed."""
        groups, source = self._groups, self._input
        for element in items:
            if source.due():
                waiting = (group.rows[0][1] for group in self._waiting.values() if group.rows)
                source.checkpoint(min(waiting, default=source.count - 1))
            columns, stream, position = element
            if type(columns) is not tuple:
                self._at.run.need(element, groups.who)
                yield element
                continue
            try:
                key, more = groups.key_of(element, self._at)
            except DataError as error:
                bad = bad_element(
                    error.at(stream.name, position, groups.who, stream.unit), stream, position, self._flow
                )
                self._at.run.need(bad, groups.who)
                yield bad
            else:
                yield (*columns, *more, key), stream, position

    def _add(self, element: Element, number: int) -> tuple[Hole | None, Group | None]:
        """Add an element to its group.

        Returns:
            A hole if `size_of` failed; and the group that it would have exceeded, in whose place it starts another.
        """
        columns, stream, position = element
        key, row, before = columns[-1], (columns[:-1], stream, position), None
        cost = self._groups.cost_of(row)
        group = self._waiting.get(key)
        if group is not None and group.total + cost > group.size:
            before, group = group, None
        if group is None:
            try:
                group = Group(self._groups.size_of(key, row, self._at))
            except DataError as error:
                error.at(stream.name, position, self._groups.who, stream.unit)
                bad: Any = bad_element(error, stream, position, self._flow)
                self._at.run.need(bad, self._groups.who)
                return bad[0], None
            self._waiting[key] = group
        group.rows.append((row, number))
        group.total += cost
        return None, before

    def _gathered(self, items: Iterator[Element]) -> Iterator[Element]:
        for key in list(self._waiting):  # of a state between two groups that one element has completed
            yield from self._full(key)
        for element in items:
            columns, stream, position = element
            if type(columns) is not tuple:
                yield element
                continue
            hole, before = self._add(element, self._input.count - 1)
            if hole is not None:
                yield hole, stream, position
                continue
            if before is not None:
                yield from self._given(columns[-1], before, True)
            yield from self._full(columns[-1])
        if self._at.run.stopped.on:
            return
        for key in sorted(self._waiting):
            yield from self._given(key, self._waiting.pop(key), False)

    def _full(self, key: Any) -> Iterator[Element]:
        """Give a group if it is full."""
        if self._groups.full(self._waiting[key]):
            yield from self._given(key, self._waiting.pop(key), True)

    def _given(self, key: Any, group: Group, full: bool) -> Iterator[Element]:
        made = self._groups.give(key, [row for row, _ in group.rows], full, self._at, self._number)
        self._number += 1
        if made is not None:
            yield made
