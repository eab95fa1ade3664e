"""windows: elements gathered into nested datasets, groups, ragged batches and batches of other sizes.

Like a batch, all of them decide here by `on_error` what a hole does: "raise" passes its error on at once, "skip" leaves
it out and fills up from what follows, "replace" lets the last good element stand in.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import DataError, FunctionError
from ..graph import digest_of
from ..plan.node import Element as Type
from ..plan.node import Node
from ..plan.windows import Held
from ..ragged import stack_arrays
from ..random import ROOT, mix64
from ..spec import LEAF, read_only
from .base import BatchStream, Context, Element, Flow, Hole, Run, Stream, stand_in
from .elements import close, counts
from .forming import batch_of_holes, raised
from .python_map import PythonFunction
from .shuffle import keep
from .stack import mismatch, one_dtype, pad_rows, stack_rows
from .state import State, below, drop, number, replayed, replayed_input
from .tape import Ahead, Tape

__all__ = ["Buckets", "Datasets", "GroupFlow", "Groups", "HeldFlow", "RowsFlow", "WindowFlow", "int_of"]


def sifted(source: Iterator[Element], run: Run) -> Iterator[Element]:
    """Good elements that may be held for long, and holes on their way to being raised; the others leave here."""
    on_error = run.settings.on_error
    early: list[Element] = []  # holes before the first good element, under "replace"
    last: Any = None
    for element in source:
        if run.stopped.is_set():
            return
        value = element[0]
        if type(value) is not Hole:
            good = keep(element)
            if on_error == "replace":
                last = good[0]
                yield from (stand_in(last, hole) for hole in early)
                early.clear()
            yield good
        elif value.raised or on_error == "raise":
            yield element if value.raised else raised(element)
        else:
            run.leave_out(element)
            if on_error == "replace" and last is None:
                early.append(element)
            elif on_error == "replace":
                yield stand_in(last, element)


def place_of(element: Element) -> tuple[Stream, int]:
    """The identity of what begins with this element: its own, without the rows of a batch."""
    _, stream, position = element
    if isinstance(stream, BatchStream):
        return Stream(stream.key, stream.name, stream.unit), position
    return stream, position


@dataclass(frozen=True, slots=True)
class Datasets:
    """Makes datasets of elements that were gathered.

    Attributes:
        type: of the elements.
        make: the dataset of a plan.
        fingerprint: of the chain that gathers them.
        line: where the user wrote it.
    """

    type: Type
    make: Callable[[Node], Any]
    fingerprint: bytes
    line: str

    def leaves(self, rows: Sequence[Element], at: Context, number: int) -> tuple[Any, ...]:
        """One dataset for each leaf of the elements."""
        wheres = [row[1:] for row in rows]
        out = []
        for i, column in enumerate(zip(*(row[0] for row in rows), strict=True)):
            elements = tuple([((leaf,), *where) for leaf, where in zip(column, wheres, strict=True)])
            kind = Type(LEAF, self.type.specs[i : i + 1], self.type.batched)
            out.append(self._held(elements, kind, at, number, i))
        return tuple(out)

    def whole(self, rows: Sequence[Element], at: Context, number: int) -> Any:
        """One dataset of the elements as they are."""
        return self._held(tuple(rows), self.type, at, number, -1)

    def _held(self, elements: tuple[Element, ...], kind: Type, at: Context, number: int, leaf: int) -> Any:
        _, stream, position = elements[0]
        origin = digest_of(self.fingerprint, at.run.settings.seed, at.epoch, at.key, number, leaf)
        return self.make(Held(elements, kind, mix64(stream.key, position), origin, line=self.line))


@dataclass(frozen=True, slots=True)
class HeldFlow:
    """Elements that were gathered, any number of times. What is handed out cannot change what is kept.

    Attributes:
        elements: with their identities.
        base: the context key in which they keep them; so does a dataset that is iterated over by itself.
    """

    elements: tuple[Element, ...]
    base: int

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        return replayed(lambda: self._elements(at), at, state)

    def _elements(self, at: Context) -> Iterator[Element]:
        own = at.key in (self.base, ROOT)
        streams: dict[int, Stream] = {}

        def rekeyed(stream: Stream) -> Stream:
            if own:
                return stream
            found = streams.get(id(stream))  # the elements keep them alive: no id is used twice
            if found is None:
                if isinstance(stream, BatchStream):
                    found = BatchStream([(rekeyed(row), position) for row, position in stream.rows])
                else:
                    found = Stream(mix64(at.key, stream.key), stream.name, stream.unit)
                streams[id(stream)] = found
            return found

        for columns, stream, position in self.elements:
            shown = copied if isinstance(stream, BatchStream) else read_only
            yield tuple([shown(column) for column in columns]), rekeyed(stream), position


def copied(column: Any) -> Any:
    """A batch's array as one that the user may change."""
    return column.copy() if type(column) is np.ndarray else column


@dataclass(frozen=True, slots=True)
class WindowFlow:
    """Datasets of `size` elements, `stride` apart; each begins `shift` elements behind the one before.

    Attributes:
        aligned: something is zipped to these windows: one with a bad element is a hole in its place.
    """

    source: Flow
    size: int
    shift: int
    stride: int
    drop: bool
    datasets: Datasets
    aligned: bool = False

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        # Under "replace" the last good element may be needed, which no state holds.
        if at.run.settings.on_error == "replace":
            return replayed_input(lambda begin: _Windows(self, at, begin), at, state)
        return _Windows(self, at, state)

    def window(self, rows: list[Element], at: Context, number: int) -> Element:
        """The window of some elements."""
        bad = next((row[0] for row in rows if type(row[0]) is Hole), None)
        return (self.datasets.leaves(rows, at, number) if bad is None else bad, *place_of(rows[0]))


class Gathering(Iterator[Element]):
    """A step that gathers elements. Its state begins in front of the oldest one that it holds.

    What is held is read once more, and so are errors that were passed on since: those are passed over.

    Args:
        source: the input.
        at: where it is opened.
        state: what `snapshot` gave.

    Attributes:
        tape: the input.
    """

    def __init__(self, source: Flow, at: Context, state: State) -> None:
        self.tape = Tape(source, at, below(state, "input"))
        self._errors: deque[int] = deque()  # numbers of the errors that were passed on
        self._items = self.run(at)
        if state is not None:
            drop(self._items, number(state, "errors"), at)

    @abstractmethod
    def run(self, at: Context) -> Iterator[Element]:
        """The elements."""

    @abstractmethod
    def oldest(self) -> int:
        """The number of the first element that is held; that of the next one if none is."""

    def __iter__(self) -> Iterator[Element]:
        return self._items

    def __next__(self) -> Element:
        return next(self._items)

    def passed(self) -> None:
        """Note that what was taken last is an error that is passed on."""
        self._errors.append(self.tape.count - 1)

    def mark(self) -> None:
        """Mark a place to begin again, if it is time."""
        oldest = self.oldest()
        while self._errors and self._errors[0] < oldest:
            self._errors.popleft()
        if self.tape.due():
            self.tape.mark()
            self.tape.forget(oldest)

    def snapshot(self) -> State:
        """Where the input stood before the oldest element that is held, and how many errors were passed on since."""
        oldest = self.oldest()
        return {"input": self.tape.state(oldest), "errors": sum(place >= oldest for place in self._errors)}

    def close(self) -> None:
        """Close the input."""
        close(self._items)
        close(self.tape.inner)


class _Windows(Gathering):
    def __init__(self, flow: WindowFlow, at: Context, state: State) -> None:
        self._flow = flow
        self._held: list[tuple[Element, int]] = []
        # Input index of held[0], that of the window, how many windows there were.
        names = ("first", "start", "windows")
        self._first, self._start, self._number = (0 if state is None else number(state, name) for name in names)
        super().__init__(flow.source, at, state)

    def oldest(self) -> int:
        return self._held[0][1] if self._held else self.tape.count

    def snapshot(self) -> State:
        """The same, and which window is next."""
        places = {"first": self._first, "start": self._start, "windows": self._number}
        return {**super().snapshot(), **places}

    def run(self, at: Context) -> Iterator[Element]:
        flow, held = self._flow, self._held
        aligned = flow.aligned and at.run.settings.on_error != "replace"
        items = map(keep, self.tape.items) if aligned else sifted(self.tape.items, at.run)
        span = (flow.size - 1) * flow.stride + 1
        more = True
        while more or held:
            while more and self._first + len(held) < self._start + span:
                self.mark()
                element = None if at.run.stopped.is_set() else next(items, None)
                if element is None:
                    more = False
                elif not counts(element):
                    self.passed()
                    yield element
                elif self._first < self._start and not held:  # between two windows
                    self._first += 1
                else:
                    held.append((element, self.tape.count - 1))
            begin = self._start - self._first
            rows = [element for element, _ in held[begin : begin + span : flow.stride]]
            if not rows or (flow.drop and self._first + len(held) < self._start + span) or at.run.stopped.is_set():
                return
            window = flow.window(rows, at, self._number)
            self._number += 1
            self._start += flow.shift
            gone = min(flow.shift, len(held))
            del held[:gone]
            self._first += gone
            yield window


def int_of(who: str, what: str, element: Element) -> int:
    """The one integer that a user's function returned.

    Raises:
        DataError: it failed, or returned anything else.
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
class Groups:
    """Groups as (key, dataset), for the function that makes a dataset of each.

    Attributes:
        size: of a group; 0 where `size_fn` says it.
        size_fn: gives the size for a key, asked when a group is begun.
    """

    key: PythonFunction
    size: int
    size_fn: PythonFunction | None
    datasets: Datasets

    def key_of(self, element: Element, at: Context) -> Any:
        """The key of an element: int64, or uint64 where the function gives that.

        Raises:
            DataError: the function failed, or gave no integer.
        """
        made = self.key(element, at)
        key = int_of(self.key.who, "key_func", made)
        return np.uint64(key) if made[0][0].dtype == np.uint64 else np.int64(key)

    def size_of(self, key: Any, element: Element, at: Context) -> int:
        """How many elements the group has that this one begins.

        Raises:
            DataError: the function failed, or gave no integer >= 1.
        """
        if self.size_fn is None:
            return self.size
        size = int_of(self.key.who, "window_size_func", self.size_fn(((key,), *element[1:]), at))
        if size < 1:
            raise FunctionError(
                f"{self.key.who} needs a window_size_func that returns sizes >= 1, got {size} for {key}"
            )
        return size

    def give(self, key: Any, rows: list[Element], full: bool, at: Context, number: int) -> Element | None:
        """What a group becomes."""
        return (key, self.datasets.whole(rows, at, number)), *place_of(rows[0])


@dataclass(frozen=True, slots=True)
class Buckets:
    """Groups by length as batches.

    Attributes:
        shapes: per leaf the target shape, -1 for the largest of the batch; None pads every dimension to it.
        values: per leaf what to fill with.
        to_boundary: -1 stands for the bucket's boundary - 1.
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

    def key_of(self, element: Element, at: Context) -> int:
        """The bucket of an element.

        Raises:
            DataError: the function failed, gave no integer, or one that no bucket holds.
        """
        who = self.length.who
        length = int_of(who, "element_length_func", self.length(element, at))
        bucket = bisect_right(self.boundaries, length)
        if self.to_boundary and self.pad and bucket == len(self.boundaries):
            raise FunctionError(
                f"{who} needs lengths below the last boundary {self.boundaries[-1]} to pad to it, got {length}"
            )
        return bucket

    def size_of(self, key: int, element: Element, at: Context) -> int:
        """Rows of a batch of this bucket."""
        return self.sizes[key]

    def give(self, key: int, rows: list[Element], full: bool, at: Context, number: int) -> Element | None:
        """The batch, or a hole if it does not stack."""
        if self.drop and not full:
            return None
        leaves = []
        try:
            for i, column in enumerate(zip(*(row[0] for row in rows), strict=True)):
                if not self.pad:
                    leaves.append(stack_rows(column, rows, self.names[i], self.length.who))
                    continue
                shape = self.shapes[i]
                if self.to_boundary:
                    shape = (-1,) * np.ndim(column[0]) if shape is None else shape
                    shape = tuple(self.boundaries[key] - 1 if n < 0 else n for n in shape)
                leaves.append(pad_rows(column, rows, self.names[i], shape, self.values[i]))
        except DataError as error:
            error.stage = self.length.who
            return Hole(error), rows[0][1], rows[0][2]
        return tuple(leaves), BatchStream([(row[1], row[2]) for row in rows]), rows[0][2]


@dataclass(frozen=True, slots=True)
class GroupFlow:
    """Elements gathered by key; a group leaves when it is full, what is left at the end by ascending key."""

    source: Flow
    groups: Groups | Buckets

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        if at.run.settings.on_error == "replace":  # as in `WindowFlow`
            return replayed_input(lambda begin: _Grouped(self, at, begin), at, state)
        return _Grouped(self, at, state)

    @property
    def who(self) -> str:
        """The method, for messages."""
        return (self.groups.key if isinstance(self.groups, Groups) else self.groups.length).who


class _Grouped(Iterator[Element]):
    """The running grouping. Its state has the numbers of the elements that wait for their group to be full."""

    def __init__(self, flow: GroupFlow, at: Context, state: State) -> None:
        self._flow = flow
        self._at = at
        self._ahead = Ahead(flow.source, at, below(state, "ahead"))
        self._waiting: dict[Any, tuple[int, list[tuple[Element, int]]]] = {}
        self._number = 0 if state is None else number(state, "groups")
        items = sifted(self._keyed(self._ahead.tape.items), at.run)
        for element, place in self._ahead.again:
            for keyed in self._keyed(iter((element,))):
                self._add(keyed, place)
        self._items = self._groups(items)

    def __iter__(self) -> Iterator[Element]:
        return self._items

    def __next__(self) -> Element:
        return next(self._items)

    def snapshot(self) -> State:
        """Where the input stands, which elements wait, and how many groups there were."""
        places = [place for _, rows in self._waiting.values() for _, place in rows]
        return {"ahead": self._ahead.state(sorted(places)), "groups": self._number}

    def close(self) -> None:
        """Close the input."""
        close(self._items)
        close(self._ahead.tape.inner)

    def _keyed(self, items: Iterator[Element]) -> Iterator[Element]:
        """Elements with their key as a last column; holes where there is none."""
        groups, tape = self._flow.groups, self._ahead.tape
        for element in items:
            if tape.due():
                tape.mark()
                waiting = (rows[0][1] for _, rows in self._waiting.values() if rows)
                tape.forget(min(waiting, default=tape.count - 1))
            columns, stream, position = element
            if type(columns) is Hole:
                yield element
                continue
            try:
                key = groups.key_of(element, self._at)
            except DataError as error:
                yield Hole(error.at(stream.name, position, self._flow.who, stream.unit)), stream, position
            else:
                yield (*columns, key), stream, position

    def _add(self, element: Element, place: int) -> Any:
        """Put an element to its group; the answer is the key of the group if it is full, or a hole in its place."""
        columns, stream, position = element
        key = columns[-1]
        row = (columns[:-1], stream, position)
        if key not in self._waiting:
            try:
                self._waiting[key] = self._flow.groups.size_of(key, row, self._at), []
            except DataError as error:
                return Hole(error.at(stream.name, position, self._flow.who, stream.unit))
        size, rows = self._waiting[key]
        rows.append((row, place))
        return (key,) if len(rows) == size else None

    def _groups(self, items: Iterator[Element]) -> Iterator[Element]:
        for element in items:
            columns, stream, position = element
            if type(columns) is Hole:
                yield element
                continue
            full = self._add(element, self._ahead.tape.count - 1)
            if isinstance(full, Hole):
                yield full, stream, position
            elif full is not None:
                yield from self._given(full[0], True)
        if self._at.run.stopped.is_set():
            return
        for key in sorted(self._waiting):
            yield from self._given(key, False)

    def _given(self, key: Any, full: bool) -> Iterator[Element]:
        """What a group becomes."""
        rows = [row for row, _ in self._waiting.pop(key)[1]]
        made = self._flow.groups.give(key, rows, full, self._at, self._number)
        self._number += 1
        if made is not None:
            yield made


@dataclass(frozen=True, slots=True)
class RowsFlow:
    """Consecutive elements as batches, whose sizes are cycled and whose leaves may be ragged.

    Attributes:
        sizes: of the batches.
        drop: leave out a short last batch.
        ranks: per leaf how many dimensions of a row are ragged; 0 stacks.
        splits: per leaf the dtype of row splits.
        names: of the leaves, for messages.
        who: the method, for messages.
        aligned: something is zipped to these batches: one with a bad row is a hole in its place.
    """

    source: Flow
    sizes: tuple[int, ...]
    drop: bool
    ranks: tuple[int, ...]
    splits: tuple[Any, ...]
    names: tuple[str, ...]
    who: str
    aligned: bool = False

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        if at.run.settings.on_error == "replace":  # as in `WindowFlow`
            return replayed_input(lambda begin: _Rows(self, at, begin), at, state)
        return _Rows(self, at, state)

    def batch(self, rows: list[Element]) -> Element:
        """A batch of some elements."""
        bad = next((row[0] for row in rows if type(row[0]) is Hole), None)
        if bad is not None:
            return batch_of_holes(rows, bad)
        columns = zip(*(row[0] for row in rows), strict=True)
        try:
            leaves = tuple([self._stacked(i, column, rows) for i, column in enumerate(columns)])
        except DataError as error:
            return Hole(error), rows[0][1], rows[0][2]
        return leaves, BatchStream([(row[1], row[2]) for row in rows]), rows[0][2]

    def _stacked(self, i: int, column: tuple[Any, ...], rows: list[Element]) -> Any:
        rank = self.ranks[i]
        if rank == 0:
            return stack_rows(column, rows, self.names[i], self.who)
        first = column[0]
        one_dtype(column, rows, self.names[i], self.who)
        for row, element in zip(column, rows, strict=True):
            if np.ndim(row) != first.ndim or row.shape[rank:] != first.shape[rank:]:
                raise mismatch(self.names[i], first.shape, np.shape(row), rows[0], element, self.who)
        try:
            return stack_arrays(column, rank, self.splits[i])
        except OverflowError as error:
            raise DataError(f"{error}; use row_splits_dtype='int64'", stage=self.who) from error


class _Rows(Gathering):
    def __init__(self, flow: RowsFlow, at: Context, state: State) -> None:
        self._flow = flow
        self._rows: list[Element] = []
        self._begin = 0  # number of the first of these rows
        self._number = 0 if state is None else number(state, "batches")
        super().__init__(flow.source, at, state)

    def oldest(self) -> int:
        return self._begin if self._rows else self.tape.count

    def snapshot(self) -> State:
        """The same, and how many batches there were."""
        return {**super().snapshot(), "batches": self._number}

    def run(self, at: Context) -> Iterator[Element]:
        flow, tape = self._flow, self.tape
        aligned = flow.aligned and at.run.settings.on_error != "replace"
        sizes = flow.sizes
        for element in tape.items if aligned else sifted(tape.items, at.run):
            if at.run.stopped.is_set():
                return
            if not counts(element):
                self.passed()
                yield element
                continue
            if not self._rows:
                self._begin = tape.count - 1
            self._rows.append(element)
            if len(self._rows) == sizes[self._number % len(sizes)]:
                yield self._cut()
                self.mark()
        if self._rows and not flow.drop and not at.run.stopped.is_set():
            yield self._cut()

    def _cut(self) -> Element:
        rows, self._rows = self._rows, []
        self._number += 1
        return self._flow.batch(rows)
