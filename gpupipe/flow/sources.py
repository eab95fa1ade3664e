"""sources: flows that make elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import length_hint
from typing import Any

import numpy as np

from ..errors import DataError, FunctionError, GpupipeError
from ..extract.tfrecord import HeaderWalker, RecordReader
from ..random import hash64, mix64
from ..spec import Structure, TensorSpec, as_leaf, describe, flatten, own, spec_of
from .base import Context, Element, Hole, Stream

__all__ = ["FilesFlow", "GeneratorFlow", "ParamFlow", "RangeFlow", "RecordsFlow", "SlicesFlow"]


@dataclass(frozen=True, slots=True)
class RangeFlow:
    """Numbers."""

    numbers: range
    dtype: np.dtype[Any]

    def open(self, at: Context) -> Iterator[Element]:
        stream = Stream(mix64(at.key, hash64("range")), "range")
        kind = self.dtype.type
        return (((kind(value),), stream, i) for i, value in enumerate(self.numbers))


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
    names: tuple[str, ...] | None = None

    def open(self, at: Context) -> Iterator[Element]:
        stream = Stream(mix64(at.key, hash64("slices")), "from_tensor_slices")
        if self.whole:
            return iter([(self.leaves, stream, 0)])
        rows = zip(*self.leaves, strict=True)
        if self.names is None:
            return ((row, stream, i) for i, row in enumerate(rows))
        seen: dict[str, int] = {}
        return (
            (row, named_stream(at, row[0].decode(errors="surrogateescape"), name, seen), 0)
            for row, name in zip(rows, self.names, strict=True)
        )


def named_stream(at: Context, shown: str, name: str, seen: dict[str, int]) -> Stream:
    """The stream of one listed file: keyed by its name and how often that name was listed before."""
    count = seen.get(name, 0)
    seen[name] = count + 1
    return Stream(mix64(mix64(at.key, hash64(name)), count), shown)


@dataclass(frozen=True, slots=True)
class FilesFlow:
    """File names, identified by their stable names."""

    paths: tuple[str, ...]
    names: tuple[str, ...]

    def open(self, at: Context) -> Iterator[Element]:
        seen: dict[str, int] = {}
        for path, name in zip(self.paths, self.names, strict=True):
            yield (path.encode(errors="surrogateescape"),), named_stream(at, path, name, seen), 0


@dataclass(frozen=True, slots=True)
class ParamFlow:
    """The one outer element of an inner dataset."""

    def open(self, at: Context) -> Iterator[Element]:
        return iter([(at.params[-1], Stream(at.key, "element"), 0)])


@dataclass(frozen=True, slots=True)
class GeneratorFlow:
    """What a Python generator yields, checked against its signature."""

    generator: Callable[..., Any]
    args: tuple[Any, ...]
    structure: Structure | None
    specs: tuple[TensorSpec, ...]
    seen: list[Structure] = field(default_factory=list, compare=False)

    def learned(self) -> Structure | None:
        """The structure of the first element, once there was one."""
        return self.seen[0] if self.seen else None

    def open(self, at: Context) -> Iterator[Element]:
        stream = Stream(mix64(at.key, hash64("generator")), "from_generator")
        try:
            values = iter(self.generator(*self.args))
        except Exception as error:
            yield Hole(failed("from_generator", error, stream, 0)), stream, 0
            return
        position = 0
        try:
            while True:
                try:
                    value = next(values)
                except StopIteration:
                    return
                except Exception as error:
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
            leaves, structure = flatten(tuple(value) if type(value) is list and self._wants_tuple() else value)
            columns = tuple([own(as_leaf(leaf)) for leaf in leaves])
            if self.structure is not None:
                return conform("from_generator", structure, columns, self.structure, self.specs)
            same_structure("from_generator", structure, self.seen)
            return columns
        except DataError as error:
            return Hole(error.at(stream.name, position, "from_generator", "index"))
        except GpupipeError as error:
            return Hole(failed("from_generator", error, stream, position))

    def _wants_tuple(self) -> bool:
        return self.structure is not None and self.structure.kind is not None


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


def exact_cast(column: Any, spec: TensorSpec) -> Any:
    """The value in the dtype of `spec` if nothing is lost and shapes agree, else None."""
    if spec.dtype is None or spec.dtype is bytes or isinstance(column, bytes) or column.dtype == object:
        return None
    with np.errstate(all="ignore"):
        cast = np.asarray(column).astype(spec.dtype)
    if not np.array_equal(cast, column, equal_nan=cast.dtype.kind == "f" and column.dtype.kind == "f"):
        return None
    cast = cast[()] if cast.ndim == 0 else cast
    return cast if spec.accepts(spec_of(cast)) else None


def failed(stage: str, error: Exception, stream: Stream, position: int) -> DataError:
    """A user's exception as a data error, with the original as its cause."""
    if isinstance(error, DataError):
        return error.at(stream.name, position, stage, stream.unit)
    wrapped = FunctionError(
        f"raised {type(error).__name__}: {error}", file=stream.name, offset=position, stage=stage, unit=stream.unit
    )
    wrapped.__cause__ = error
    return wrapped


@dataclass(frozen=True, slots=True)
class RecordsFlow:
    """The records of the TFRecord file that an outer element names.

    Attributes:
        source: gives the one outer element.
        column: which of its columns is the path.
        compression: "", "GZIP" or "ZLIB".
        references: yield references (file, offset, length) instead of payloads, where the file allows it.
        ahead: whether reader threads run ahead.
    """

    source: Any
    column: int
    compression: str = ""
    references: bool = False
    ahead: bool = False

    def open(self, at: Context) -> Iterator[Element]:
        for value, _, _ in self.source.open(at):
            path = value[self.column].decode(errors="surrogateescape")
            stream = Stream(mix64(at.key, hash64("records")), path, "offset")
            if self.references and not self.compression:
                return (element_of(item, stream) for item in HeaderWalker(path))
            readers = at.run.readers if self.ahead else None
            reader = RecordReader(path, compression=self.compression, readers=readers)
            return RecordIterator(reader, stream)
        return iter(())


class RecordIterator:
    """The records of a file as elements, damaged ones as holes; reads block by block."""

    __slots__ = ("_blocks", "_items", "_reader", "_stream")

    def __init__(self, reader: RecordReader, stream: Stream) -> None:
        self._reader = reader
        self._blocks = reader.blocks()
        self._items: Iterator[tuple[int, Any]] = iter(())
        self._stream = stream

    def __iter__(self) -> RecordIterator:
        return self

    def __next__(self) -> Element:
        item = next(self._items, None)
        if item is None:
            self._items = iter(next(self._blocks))
            item = next(self._items)
        return element_of(item, self._stream)

    def ready(self) -> bool:
        """Whether the next record is there without waiting."""
        return length_hint(self._items) > 0 or self._reader.ready()

    def close(self) -> None:
        """End the reader."""
        self._reader.close()
        self._blocks.close()


def element_of(item: tuple[int, Any], stream: Stream) -> Element:
    """What a reader gives as an element, an error as a hole."""
    offset, value = item
    if isinstance(value, DataError):
        return Hole(value.at(stream.name, offset, "read", "offset")), stream, offset
    return (value,), stream, offset
