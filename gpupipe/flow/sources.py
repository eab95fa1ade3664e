"""sources: flows that make elements."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from typing import Any

import numpy as np

from ..errors import ENDING, DataError, FunctionError, GpupipeError, LengthError, PlanTypeError, StateError, text_of
from ..extract.index import RecordIndex, find_index, record_index, version_of
from ..extract.names import Names
from ..extract.patterns import is_url
from ..extract.reference import Reference, indexed_elements
from ..extract.storage import LOCAL
from ..extract.tfrecord import BLOCK, HeaderWalker, RecordReader
from ..op import Array
from ..random import mix64_array
from ..spec import Compound, Structure, TensorSpec, as_declared, as_leaf, describe, flatten, flatten_like, own, spec_of
from .base import Context, Element, Hole, Run, Stream
from .closing import close
from .files import REMOTE_BLOCK, ReaderIterator, element_of, reader_pool
from .places import Access, Made, blocks_of, kept
from .state import Counted, Numbered, State, as_number, below, number, replayed, start_of
from .state import number as number_of

__all__ = ["FilesFlow", "GeneratorFlow", "ParamFlow", "Placed", "RangeFlow", "RecordsFlow", "SlicesFlow"]

_BLOCK = 1024


@dataclass(frozen=True, slots=True)
class Placed:
    """What a source holds, in one context, by place: its number is enough to keep an element.

    Attributes:
        size: how many elements there are.
        make: the elements at some places, many at a time.
    """

    size: int
    make: Callable[[list[int]], Iterator[Element]]

    def since(self, done: int) -> Iterator[Element]:
        """The elements from a place on, in their order."""
        starts = range(done, self.size, _BLOCK)
        return chain.from_iterable(self.make(list(range(start, min(start + _BLOCK, self.size)))) for start in starts)


@dataclass(frozen=True, slots=True)
class RangeFlow:
    """Numbers, made in blocks: an array that is iterated gives a scalar in 16 ns, a Python integer one in 160."""

    numbers: range
    dtype: np.dtype[Any]

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        stream = at.stream("range", "range")
        done = 0 if state is None else number(state, "n")
        starts = range(done, len(self.numbers), _BLOCK)
        scalars = chain.from_iterable(self._block(self.numbers[start : start + _BLOCK]) for start in starts)
        return Numbered(zip(scalars), stream, done)

    def placed(self, at: Context) -> Placed:
        """The numbers by place."""
        numbers, kind = self.numbers, self.dtype.type
        stream = at.stream("range", "range")
        fits = self._fits(numbers)

        def make(places: list[int]) -> Iterator[Element]:
            if not fits:
                return zip(zip(kind(numbers[i]) for i in places), repeat(stream), places)
            chosen = np.array(places, np.int64) * numbers.step + numbers.start
            return zip(zip(chosen.astype(kind, copy=False)), repeat(stream), places)

        return Placed(len(numbers), make)

    def _block(self, numbers: range) -> Iterable[Any]:
        """Some of the numbers as scalars, one by one where they may not fit: the error comes where the number is."""
        kind = self.dtype.type
        if not self._fits(numbers):
            return map(kind, numbers)
        block: Array = np.arange(numbers.start, numbers.stop, numbers.step, dtype=np.int64)
        return block.astype(kind, copy=False)

    def _fits(self, numbers: range) -> bool:
        """Whether an array of integers holds some of the numbers, and casting it rounds as casting each does."""
        kind = self.dtype.type
        if kind in (np.float32, np.float64):
            low, high = -(2**53), 2**53  # where a double holds every integer: beyond, two roundings are not one
        elif self.dtype.kind != "f":
            low, high = max(np.iinfo(kind).min, -(2**63)), min(np.iinfo(kind).max, 2**63 - 1)
        else:
            return False
        whole = all(-(2**63) <= n < 2**63 for n in (numbers.start, numbers.stop, numbers.step))
        return whole and all(low <= end <= high for end in (*numbers[:1], *numbers[-1:]))

    def access(self, at: Context) -> Access:
        return FromPlaced(self.placed(at))


@dataclass(frozen=True, slots=True)
class SlicesFlow:
    """Slices of arrays.

    Attributes:
        leaves: the arrays.
        whole: give the arrays themselves as one element.
        names: identify the elements by these (they are paths) and by how often a name came before; so a Python slice of
            the list, or another directory, changes no augmentation. None identifies them by index.
    """

    leaves: tuple[Any, ...]
    whole: bool = False
    names: Names | None = None

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        stream = at.stream("slices", "from_tensor_slices")
        if self.whole:
            return replayed(lambda: iter([(self.leaves, stream, 0)]), at, state)
        placed = self.placed(at) if self.names is not None else None
        if placed is not None:
            return listed(placed, state)
        rows = zip(*self.leaves, strict=True)
        done = 0 if state is None else number(state, "n")
        return Numbered(islice(rows, done, None) if done else rows, stream, done)

    def placed(self, at: Context) -> Placed | None:
        """The slices by place; None where there is one element."""
        if self.whole:
            return None
        leaves, names = self.leaves, self.names

        def rows(places: list[int]) -> Iterator[tuple[Any, ...]]:
            return zip(*chosen(leaves, places), strict=True)

        if names is None:
            stream = at.stream("slices", "from_tensor_slices")
            return Placed(len(leaves[0]), lambda places: zip(rows(places), repeat(stream), places))

        def named(places: list[int]) -> Iterator[Element]:
            shown = [leaves[0][i].decode(errors="surrogateescape") for i in places]
            return zip(rows(places), named_streams(at, names, places, shown), repeat(0))

        return Placed(len(names), named)

    def access(self, at: Context) -> Access:
        placed = self.placed(at)
        return kept(list(self.open(at))) if placed is None else FromPlaced(placed)


def chosen(leaves: Sequence[Any], places: list[int]) -> list[Iterable[Any]]:
    """Some of the rows of every leaf, as iterating over it gives them: numbers at once, those of arrays as views."""
    where = np.array(places, np.int64)
    return [
        leaf[where] if type(leaf) is np.ndarray and leaf.ndim == 1 else [leaf[i] for i in places] for leaf in leaves
    ]


def named_streams(at: Context, names: Names, places: list[int], shown: Sequence[str]) -> Iterator[Stream]:
    """The streams of some listed files: each keyed by its name and by how often that name was listed before."""
    where = np.array(places, np.int64)
    hashes, before = names.hashes(where), names.before(where)

    def keys(start: int) -> list[int]:
        found: list[int] = mix64_array(mix64_array(np.full(len(places), start, np.uint64), hashes), before).tolist()
        return found

    if at.alike == at.key:
        return map(Stream, keys(at.key), shown)
    return map(Stream, keys(at.key), shown, repeat("index"), keys(at.alike))


def listed(placed: Placed, state: State) -> Iterator[Element]:
    """What a list of files gives, from a place on.

    Raises:
        StateError: it is shorter.
    """
    done = 0 if state is None else number(state, "n")
    if done > placed.size:
        raise StateError(
            f"load_state_dict needs the data that the state was taken over: the input ends {done - placed.size} "
            f"elements before it"
        )
    return Counted(placed.since(done), done=done)


@dataclass(frozen=True, slots=True)
class FilesFlow:
    """File names, identified by their stable names."""

    paths: tuple[str, ...]
    names: Names

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        return listed(self.placed(at), state)

    def placed(self, at: Context) -> Placed:
        """The file names by place."""
        paths, names = self.paths, self.names

        def make(places: list[int]) -> Iterator[Element]:
            shown = [paths[i] for i in places]
            columns = zip([path.encode(errors="surrogateescape") for path in shown])
            return zip(columns, named_streams(at, names, places, shown), repeat(0))

        return Placed(len(paths), make)

    def access(self, at: Context) -> Access:
        return FromPlaced(self.placed(at))


@dataclass(frozen=True, slots=True)
class ParamFlow:
    """The one outer element of an inner dataset."""

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        return replayed(lambda: iter([(at.params[-1], Stream(at.key, "element", alike=at.alike), 0)]), at, state)

    def access(self, at: Context) -> Access:
        return kept(list(self.open(at)))


@dataclass(frozen=True, slots=True)
class GeneratorFlow:
    """What a Python generator yields, checked against its signature."""

    generator: Callable[..., Any]
    args: tuple[Any, ...]
    structure: Structure | None
    specs: tuple[TensorSpec, ...]
    seen: list[Structure] = field(default_factory=list, compare=False)
    first: list[tuple[TensorSpec, ...]] = field(default_factory=list, compare=False)

    def learned(self) -> Structure | None:
        """The structure of the first element, once there was one."""
        return self.seen[0] if self.seen else None

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        return replayed(lambda: self._elements(at), at, state)  # nobody knows how to begin in the middle

    def _elements(self, at: Context) -> Iterator[Element]:
        stream = at.stream("generator", "from_generator")
        try:
            values = iter(self.generator(*self.args))
        except ENDING:
            raise
        except BaseException as error:
            yield Hole(failed("from_generator", error, stream, 0)), stream, 0
            return
        position = 0
        try:
            while True:
                try:
                    value = next(values)
                except StopIteration:
                    return
                except ENDING:
                    raise
                except BaseException as error:
                    yield Hole(failed("from_generator", error, stream, position)), stream, position
                    return
                yield self._checked(value, stream, position), stream, position
                position += 1
        finally:
            close = getattr(values, "close", None)
            if close is not None:
                close()

    def _checked(self, value: Any, stream: Stream, position: int) -> Any:
        try:
            if self.structure is not None:
                parts = flatten_like(value, self.structure)
                if parts is None:
                    wanted = describe(self.structure.unflatten(list(self.specs)))
                    raise FunctionError(f"from_generator needs elements like {wanted}, got {shown(value)}")
                leaves = [own(as_declared(part, spec)) for part, spec in zip(parts, self.specs, strict=True)]
                columns = conform("from_generator", self.structure, tuple(leaves), self.structure, self.specs)
                if any(spec.dtype is None for spec in self.specs):
                    self._like_the_first(columns)
                return columns
            leaves, structure = flatten(value)
            columns = tuple([own(as_leaf(leaf)) for leaf in leaves])
            same_structure("from_generator", structure, self.seen)
            self._like_the_first(columns)
            return columns
        except DataError as error:
            return Hole(error.at(stream.name, position, "from_generator", "index"))
        except GpupipeError as error:
            return Hole(failed("from_generator", error, stream, position))

    def _like_the_first(self, columns: tuple[Any, ...]) -> None:
        """Check dtypes, and ranks where there is no signature, against the first element's; remember the first.

        Raises:
            FunctionError: they differ.
        """
        if not self.first:
            specs = [spec_of(column).loose() for column in columns]
            if self.structure is not None:  # the signature leaves the rank open, or it was checked
                specs = [TensorSpec(None, spec.dtype) if type(spec) is TensorSpec else spec for spec in specs]
            self.first.append(tuple(specs))
            return
        first = self.first[0]
        if all(map(fits, columns, first)):
            return
        found = tuple(map(spec_of, columns))
        if not all(a.accepts(b) for a, b in zip(first, found, strict=True)):
            structure = self.structure or self.seen[0]
            raise FunctionError(
                f"needs elements of one dtype and rank, got {describe(structure.unflatten(found))} after "
                f"{describe(structure.unflatten(first))}; convert them, or say what they are with output_signature="
            )


def shown(value: Any) -> str:
    """The start of a value's text, for messages."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def same_structure(who: str, structure: Structure, seen: list[Structure]) -> None:
    """Check a structure against the first one, and remember the first.

    Raises:
        FunctionError: they differ.
    """
    if not seen:
        seen.append(structure)
    elif structure != seen[0]:
        raise FunctionError(f"{who} needs elements of one structure, got {structure} after {seen[0]}")


def conform(
    who: str, structure: Structure, columns: tuple[Any, ...], wanted: Structure, specs: Sequence[TensorSpec]
) -> tuple[Any, ...]:
    """Check an element against its declared type. Python numbers take the declared dtype if they fit it exactly.

    Raises:
        FunctionError: another structure, dtype or shape.
    """
    if structure != wanted:
        raise FunctionError(
            f"{who} needs elements like {describe(wanted.unflatten(list(specs)))}, got the structure {structure}"
        )
    if all(map(fits, columns, specs)):
        return columns
    out = []
    for column, spec, name in zip(columns, specs, wanted.leaf_names(), strict=True):
        found = spec_of(column)
        if not spec.accepts(found):
            fitted = exact_cast(column, spec)
            if fitted is None:
                raise FunctionError(f"{who} needs {spec}{f' for {name}' if name else ''}, got {found}")
            column = fitted
        out.append(column)
    return tuple(out)


def fits(column: Any, spec: TensorSpec) -> bool:
    """Whether a column is what `spec` says, as ``spec.accepts(spec_of(column))`` finds for numbers, arrays and bytes.

    False for every other leaf, which the general rule decides.
    """
    if type(spec) is not TensorSpec:
        return False
    if type(column) is bytes:
        return spec.dtype in (bytes, None) and not spec.shape
    if not isinstance(column, (np.ndarray, np.generic)) or column.dtype == object:
        return False
    if spec.dtype is not None and column.dtype != spec.dtype:
        return False
    if spec.shape is None or column.shape == spec.shape:
        return True
    return column.ndim == len(spec.shape) and all(map(fits_size, column.shape, spec.shape))


def fits_size(size: int, declared: int | None) -> bool:
    """Whether a dimension is as declared."""
    return declared is None or size == declared


def exact_cast(column: Any, spec: TensorSpec) -> Any:
    """The value in the dtype of `spec` if nothing is lost and shapes agree, else None."""
    if spec.dtype is None or spec.dtype is bytes or isinstance(column, (bytes, Compound)) or column.dtype == object:
        return None
    with np.errstate(all="ignore"):
        cast = np.asarray(column).astype(spec.dtype)
    if not np.array_equal(cast, column, equal_nan=cast.dtype.kind == "f" and column.dtype.kind == "f"):
        return None
    cast = cast[()] if cast.ndim == 0 else cast
    return cast if spec.accepts(spec_of(cast)) else None


def failed(stage: str, error: BaseException, stream: Stream, position: int) -> DataError:
    """A user's exception as a data error, with the original as its cause."""
    if not isinstance(error, DataError):
        wrapped = FunctionError(f"raised {text_of(error)}", stage=stage)
        wrapped.__cause__ = error
        error = wrapped
    return error.at(stream.name, position, stage, stream.unit)


@dataclass(frozen=True, slots=True)
class RecordsFlow:
    """The records of the TFRecord file that an outer element names.

    Attributes:
        source: gives the one outer element.
        column: which of its columns is the path.
        compression: "", "GZIP" or "ZLIB".
        references: yield references (file, offset, length) instead of payloads, where the file allows it.
        ahead: whether reader threads run ahead.
        index: where indexes of files are kept, see `record_index`.
    """

    source: Any
    column: int
    compression: str = ""
    references: bool = False
    ahead: bool = False
    index: str = "memory"

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        for value, _, _ in self.source.open(at):
            path = value[self.column].decode(errors="surrogateescape")
            stream = at.stream("records", path, "offset")
            remote = is_url(path)
            if self.references and not self.compression and not remote:
                return _References(path, stream, self.index, state)
            readers = reader_pool(at, path, self.ahead)
            block = REMOTE_BLOCK if remote else BLOCK
            reader = RecordReader(
                path,
                compression=self.compression,
                readers=readers,
                block=block,
                start=start_of(state),
                first=None if state is None else number(state, "before"),
                index=self.index,
            )
            return ReaderIterator(reader, stream, at, state)
        return Counted(iter(()))

    def access(self, at: Context) -> Access:
        found = records_of(self, at, build=True)
        return kept([]) if found is None else found


class _References(Iterator[Element]):
    """References to the records of a file. Its state is the offset of the last one, and how many were given."""

    def __init__(self, path: str, stream: Stream, index: str, state: State) -> None:
        last = below(state, "offset")
        self._lost = state is not None and bool(state.get("lost"))
        start, self._given = 0, 0
        if last is not None:
            start, self._given = as_number(last, "offset"), max(number(state, "given") - 1, 0)
        self._last: Any = (None, None, last)
        walker = HeaderWalker(path, start=start, first=self._given, where=index)
        self._items = self._elements(walker.rows(stream), stream)
        if self._lost:
            self._items.close()
            self._given = number(state, "given")
        elif last is not None:
            next(self._items, None)

    def __iter__(self) -> Iterator[Element]:
        return self._items

    def __next__(self) -> Element:
        return next(self._items)

    def _elements(self, rows: Iterator[Any], stream: Stream) -> Generator[Element, None, None]:
        for row in rows:
            element = row
            if type(row[0][0]) is not Reference:
                element = element_of((row[2], row[0][0]), stream)
                self._lost = element[0].error.lost
            self._last = element
            self._given += 1
            yield element

    def snapshot(self) -> State:
        """The offset of the last record, and how many were given; whether the rest of the file was lost there."""
        state = {"offset": self._last[2], "given": self._given}
        return {**state, "lost": True} if self._lost else state

    def close(self) -> None:
        """End the walk."""
        close(self._items)


@dataclass(frozen=True, slots=True)
class ItemsFlow:
    """The numbers of the items of an object: what `from_indexable` asks it for."""

    count: int

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        return self.chosen(at, range(self.count), state)

    def chosen(self, at: Context, places: range, state: State = None) -> Iterator[Element]:
        """The elements at some places."""
        stream = at.stream("indexable", "from_indexable")
        done = 0 if state is None else number_of(state, "n")
        return Counted((((i,), stream, i) for i in places[done:]), done=done)

    def access(self, at: Context) -> Access:
        stream = at.stream("indexable", "from_indexable")
        return Made(self.count, lambda i: ((i,), stream, i))


class FromPlaced(Access):
    """What a source holds by place, many elements at a time."""

    def __init__(self, placed: Placed) -> None:
        self.size = placed.size
        self._make = placed.make

    def one(self, place: int) -> Element:
        return next(self._make([place]))

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        return chain.from_iterable(self._make(block.tolist()) for block in blocks)


class Records(Access):
    """The records of one file."""

    def __init__(self, flow: RecordsFlow, path: str, index: RecordIndex, stream: Stream) -> None:
        self.size = len(index) - (not index.lasting)  # the error of what could not be read is no record
        self._index = index
        self._path = path
        self._stream = stream
        self._references = flow.references

    def one(self, place: int) -> Element:
        offset, length = self._index.place(place)
        stream = self._stream
        error = self._index.faults.get(place)
        if error is not None:
            return Hole(error.at(stream.name, offset, "read", "offset")), stream, offset
        reference = Reference(self._path, offset, length)
        if self._references:
            return (reference,), stream, offset
        try:
            return (reference.read(),), stream, offset
        except DataError as failed:
            return Hole(failed.at(stream.name, offset, "read", "offset")), stream, offset

    def strided(self, start: int, step: int) -> Iterator[Element]:
        """Every `step`-th record from place `start` on."""
        if self._references and not self._index.faults and self._index.lasting:
            return indexed_elements(self._index, self._path, self._stream, start, step)
        return self.pick(blocks_of(start, self.size, step))


def records_of(flow: RecordsFlow, at: Context, build: bool) -> Records | None:
    """The records of a file whose index is there, or is built now."""
    for value, _, _ in flow.source.open(at):
        path = value[flow.column].decode(errors="surrogateescape")
        if is_url(path):
            if build:
                # a TypeError, so that `list(ds)`, which asks for a length, goes on without one
                raise PlanTypeError(f"a choice by place needs local files, got {path}; copy it to a disk")
            return None
        try:
            LOCAL.size(path)  # drops what is open of an earlier version of the file
        except DataError:
            if not build:
                return None
        index = record_index(path, flow.index) if build else find_index(path, version_of(path), flow.index)
        if index is None:
            return None
        stream = at.stream("records", path, "offset")
        if index.failure is not None:
            _uncounted(at.run, index.failure, stream)
        return Records(flow, path, index, stream)
    return None


def _uncounted(run: Run, failure: DataError, stream: Stream) -> None:
    """A file could not be read to its end: only where that is allowed, the records in front of that place are all.

    Raises:
        DataError: it is not; a LengthError where somebody only asks for their number.
    """
    hole = Hole(failure)
    hole.raised = True
    element = hole, stream, failure.offset or 0
    if run.settings.lost_files == "skip":
        run.lose(element)
    elif run.counting:
        raise LengthError(
            failure.reason, file=failure.file, offset=failure.offset, stage=failure.stage, unit=failure.unit
        ) from failure
    else:
        run.note(element, "raised")
        raise failure.again()
