"""io: files, records and Examples, as ops that run on the host.

Inside a traced map an unused feature is not parsed: the optimizer replaces the op by its `select(names)`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from .classes import dataclass
from .errors import ParseError, PlanError, PlanTypeError, SpecError
from .extract.examples.encode import encode_example
from .extract.examples.example import ExampleParser
from .extract.examples.features import Feature, FixedLenFeature, FixedLenSequenceFeature, RaggedFeature, VarLenFeature
from .extract.records.writer import TFRecordWriter
from .extract.storage.files import OpenFile
from .extract.storage.longest import longest, too_long
from .extract.storage.patterns import file_name
from .extract.storage.remote import storage_of
from .graph.named import Named
from .graph.op import Op
from .graph.symbols import Symbol, active_trace, apply
from .missing import names_missing
from .ragged import Ragged
from .spec import TensorSpec, byte_array

__all__ = [
    "FixedLenFeature",
    "FixedLenSequenceFeature",
    "Ragged",
    "RaggedFeature",
    "TFRecordWriter",
    "VarLenFeature",
    "build_index",
    "encode_example",
    "parse_example",
    "parse_single_example",
    "read_file",
]


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:
    __getattr__ = names_missing(__name__, __all__, {})


@dataclass(frozen=True, slots=True)
class ParseSingleExample(Op):
    """Read features of a serialised `tf.train.Example`: one result for each, in order.

    Attributes:
        features: (name, description) of each.

    Shapes: ``bytes -> dtype[shape]`` of each feature
    """

    domain: ClassVar[Literal["image", "host", "any"]] = "host"

    features: tuple[tuple[str, Feature], ...] = ()

    def __post_init__(self) -> None:
        parser_of(self.features)  # raises if a feature is wrong

    def infer(self, *xs: TensorSpec) -> TensorSpec | tuple[TensorSpec, ...]:
        (x,) = xs
        if x.shape != () or x.dtype is not bytes:
            hint = "; parse_example takes several records" if x.dtype is bytes else ""
            raise SpecError(f"parse_single_example needs one record, a bytes scalar, got {x}{hint}")
        specs = tuple(_spec_of(feature) for _, feature in self.features)
        return specs[0] if len(specs) == 1 else specs

    def reference(self, x: Any) -> Any:
        values = parser_of(self.features).parse(x)
        return values[0] if len(values) == 1 else values

    def compiled(self, line: str = "") -> Callable[..., Any]:
        parse = parser_of(self.features).parse
        return parse if len(self.features) > 1 else lambda x: parse(x)[0]

    def select(self, names: Sequence[str]) -> ParseSingleExample:
        """The op for some of the features, in the order of `names`. With one name the result is not a tuple."""
        known = dict(self.features)
        return ParseSingleExample(tuple((name, known[name]) for name in names))


@lru_cache(512)
def parser_of(features: tuple[tuple[str, Feature], ...]) -> ExampleParser:
    return ExampleParser(dict(features))


def _spec_of(feature: Feature) -> TensorSpec:
    dtype = bytes if feature.dtype == "bytes" else feature.dtype
    if isinstance(feature, FixedLenFeature):
        return TensorSpec(feature.shape, dtype)
    if isinstance(feature, FixedLenSequenceFeature):
        return TensorSpec((None, *feature.shape), dtype)
    return TensorSpec((None,), dtype)


def _op_of(features: Mapping[str, Feature], who: str) -> ParseSingleExample:
    if not isinstance(features, Mapping):
        raise PlanTypeError(f"{who} needs a dict of features, got {type(features).__name__}")
    if not all(isinstance(feature, Feature) for feature in features.values()):
        ExampleParser(features)  # names the wrong one, which may not be hashable
    return ParseSingleExample(tuple(features.items()))


def parse_single_example(record: Any, features: Mapping[str, Feature]) -> dict[str, Any]:
    """Read features of one serialised `tf.train.Example`.

    Args:
        record: the bytes of one record.
        features: name -> `FixedLenFeature`, `VarLenFeature`, `FixedLenSequenceFeature` or `RaggedFeature`.

    Returns:
        name -> value: bytes, a NumPy scalar, or an array.

    Raises:
        SpecError: `record` is not one byte string.
        ParseError: the record is not an Example, lacks a feature, or holds another type or number of values.

    Example:
        >>> parse_single_example(encode_example({"label": 7}), {"label": FixedLenFeature((), "int64")})
        {'label': np.int64(7)}
    """
    op = _op_of(features, "parse_single_example")
    if not isinstance(record, (Symbol, bytes, memoryview, bytearray)):
        kind = type(record).__name__
        raise SpecError(f"parse_single_example needs one record as bytes, got {kind}; parse_example takes several")
    parsed = apply(op, record)
    values = parsed if len(op.features) > 1 else (parsed,)
    names = [name for name, _ in op.features]
    # Encoded images are views of the record, which saves a copy in a pipeline; callers outside one expect bytes.
    found = dict(zip(names, (bytes(v) if isinstance(v, memoryview) else v for v in values), strict=True))
    active = active_trace()
    return Named(found, "parse_single_example") if active is not None and active.named else found


def parse_example(records: Any, features: Mapping[str, Feature]) -> dict[str, Any]:
    """Read features of a batch of serialised `tf.train.Example`s.

    Args:
        records: a list or 1-D array of bytes; in a traced function a batch of records.
        features: name -> description, as for `parse_single_example`; in a traced function only `FixedLenFeature`.

    Returns:
        name -> value for all records: FixedLen is stacked, `dtype[records, *shape]`; FixedLenSequence is padded at the
        end with its default (0 or b"") to the longest; VarLen and Ragged are a `Ragged` (VarLen in tf.io: sparse).

    Raises:
        SpecError: `records` is not a batch of byte strings.
        ParseError: a record is wrong; names it.
    """
    op = _op_of(features, "parse_example")
    if isinstance(records, Symbol):
        for name, feature in op.features:
            if records._batched and not isinstance(feature, FixedLenFeature):
                raise SpecError(
                    f"parse_example needs features of one length inside map, got {type(feature).__name__} for "
                    f"{name!r}; use parse_single_example before the batch, and ragged_batch or padded_batch"
                )
        return parse_single_example(records, features)
    if isinstance(records, (bytes, str, memoryview)) or np.ndim(records) != 1:
        kind = type(records).__name__
        raise SpecError(f"parse_example needs a list or vector of records, got {kind}; use parse_single_example")
    parser = parser_of(op.features)
    rows = [_parsed(parser, i, record) for i, record in enumerate(records)]
    columns = list(zip(*rows, strict=True)) or [()] * len(op.features)
    return {name: _stacked(feature, column) for (name, feature), column in zip(op.features, columns, strict=True)}


def _parsed(parser: ExampleParser, index: int, record: Any) -> tuple[Any, ...]:
    if not isinstance(record, (bytes, memoryview, bytearray)):
        raise SpecError(f"parse_example needs records as bytes, got {type(record).__name__} for record {index}")
    try:
        return parser.parse(record)
    except ParseError as error:
        raise ParseError(f"record {index}: {error.reason}", stage="parse_example") from None


def _stacked(feature: Feature, rows: Sequence[Any]) -> Any:
    dtype: Any = object if feature.dtype == "bytes" else feature.dtype
    if isinstance(feature, FixedLenFeature):
        if feature.dtype == "bytes" and feature.shape == ():
            return byte_array([bytes(row) for row in rows])
        return np.array(rows, dtype).reshape(len(rows), *feature.shape)
    if isinstance(feature, FixedLenSequenceFeature):
        longest = max(map(len, rows), default=0)
        fill = feature.default_value
        if fill is None:
            fill = b"" if feature.dtype == "bytes" else 0
        padded = np.full((len(rows), longest, *feature.shape), fill, dtype)
        for out, row in zip(padded, rows, strict=True):
            out[: len(row)] = row
        return padded
    splits = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return Ragged(np.concatenate(rows) if rows else np.empty(0, dtype), splits)


@dataclass(frozen=True, slots=True)
class ReadFile(Op):
    """Read a whole file.

    Shapes: ``bytes -> bytes``
    """

    domain: ClassVar[Literal["image", "host", "any"]] = "host"

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        (x,) = xs
        if x.shape != () or x.dtype is not bytes:
            raise SpecError(f"read_file needs one path, a string, got {x}")
        return x

    def reference(self, x: Any) -> bytes:
        name = os.fsdecode(bytes(x))
        file = OpenFile(storage_of(name), name)
        size = file.size
        if size > longest():
            raise too_long(name, 0, size, "a file that is read as a whole")
        return file.read(0, size)


def read_file(path: Any) -> Any:
    """Read a whole file.

    Args:
        path: of a file, or its URL: a string, bytes or path.

    Returns:
        The content as bytes.

    Raises:
        PlanError: no file can have this name.
        MissingFileError: the file does not exist.
        DirectoryError: the path is a directory.
        RecordError: the file cannot be read, or is longer than `Options.max_record`.
    """
    if isinstance(path, Symbol):
        return apply(ReadFile(), path)
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise PlanError(f"read_file needs one path, got {type(path).__name__}")
    return apply(ReadFile(), os.fsencode(file_name("read_file", os.fsdecode(path))))


def build_index(filenames: Any, where: str | os.PathLike[str] = "beside") -> int:
    """Index TFRecord files now: one pass over the headers of each, whose CRCs are verified; no payload is read.

    `len(ds)`, `ds[i]`, `skip`, `split` and `shuffle(gp.ALL)` then use that index. Files with a current index are not
    read.

    Args:
        filenames: a path, or a list of paths, of uncompressed local files.
        where: ``"memory"`` keeps the index in this process, ``"beside"`` also saves it next to each file; anything else
            is a folder to save it in, for ``TFRecordDataset(..., index=where)``.

    Returns:
        The number of records, damaged ones included.

    Raises:
        MissingFileError, DirectoryError, RecordError: a file cannot be read.
        PlanTypeError: an argument is not a path.
    """
    from .extract.records.index import record_index

    one = isinstance(filenames, (str, bytes, os.PathLike))
    if not isinstance(where, (str, os.PathLike)) or not os.fspath(where):
        raise PlanTypeError(f'build_index needs "memory", "beside" or a folder, got {where!r}')
    records = 0
    for name in [filenames] if one else filenames:
        if not isinstance(name, (str, bytes, os.PathLike)):
            raise PlanTypeError(f"build_index needs paths, got {name!r}")
        index = record_index(os.fsdecode(name), os.fsdecode(where))
        if not index.lasting:
            raise next(iter(index.faults.values())).again()
        records += len(index)
    return records
