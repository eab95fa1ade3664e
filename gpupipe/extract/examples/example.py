"""example: read a tf.train.Example without protobuf.

The requested features are found in one pass over the record; all others are skipped by their length. Parsing two
features of a record with sixteen takes about 5 us, including the image, which is not copied.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, NoReturn

import numpy as np

from gpupipe.brief import brief
from gpupipe.errors import ParseError, PlanError, PlanTypeError
from gpupipe.extract.examples.encode import encode_example
from gpupipe.extract.examples.features import Feature, FixedLenFeature, FixedLenSequenceFeature
from gpupipe.extract.examples.listing import feature_types
from gpupipe.extract.examples.wire import BYTES, FIXED32, VARINT, WireError, fields, varint, varints
from gpupipe.extract.storage.sharing import gil_is_on, handed_over

__all__ = ["ExampleParser", "encode_example"]

STAGE = "parse_single_example"


_four = struct.Struct("<4B").unpack_from


_word = struct.Struct("<I").unpack_from


_float = struct.Struct("<f").unpack_from


_KINDS = {1: "bytes", 2: "float32", 3: "int64"}


_TAGS = {"bytes": 0x0A, "float32": 0x12, "int64": 0x1A}


_NUMPY: dict[str, Any] = {"bytes": object, "float32": np.float32, "int64": np.int64}


_Decode = Callable[[memoryview, int, int], Any]


class ExampleParser:
    """Parses records into the values of `features`, in their order.

    Args:
        features: name -> description of its values.

    Raises:
        PlanError: no features.
        PlanTypeError: a value that is not a feature description.

    Example:
        >>> parser = ExampleParser({"label": FixedLenFeature((), "int64")})
        >>> parser.parse(encode_example({"label": 7}))
        (np.int64(7),)
    """

    __slots__ = ("_columns", "_decoders", "_lengths", "_missing", "_steps", "features")

    def __init__(self, features: Mapping[str, Feature]) -> None:
        if not isinstance(features, Mapping):
            raise PlanTypeError(f"parse_single_example needs a dict of features, got {type(features).__name__}")
        if not features:
            raise PlanError("parse_single_example needs at least one feature, got none")
        for name, feature in features.items():
            if not isinstance(name, str):
                raise PlanTypeError(f"parse_single_example needs names of features that are strings, got {name!r}")
            if not isinstance(feature, Feature):
                kind = type(feature)
                owner = kind.__module__.partition(".")[0]
                got = kind.__name__ if owner == "builtins" else f"{kind.__name__} of {owner}"
                raise PlanTypeError(
                    f"feature {name!r} needs a description such as gpupipe.io.FixedLenFeature, got {got}"
                )
        self.features = dict(features)
        self._columns = {name.encode(): k for k, name in enumerate(features)}
        self._lengths = frozenset(len(name) for name in self._columns)
        # First 4 bytes of an entry (tag, size, tag, length of the name) -> bytes to the next entry, for names of other
        # lengths than the requested ones. Learned from the records; at most 128 * 128 entries.
        self._steps: dict[int, int] = {}
        self._decoders: list[_Decode] = [_decoder(name, feature) for name, feature in features.items()]
        self._missing = [_missing(feature) for feature in features.values()]

    def parse(self, payload: bytes | bytearray | memoryview) -> tuple[Any, ...]:
        """Parse one record.

        Returns:
            One value for each feature. FixedLen: bytes of shape () as a view of `payload` (without the GIL a copy),
            numbers of shape () as NumPy scalars, else arrays. The others: arrays. Arrays of bytes have dtype object,
            and hold `bytes`.

        Raises:
            ParseError: the record is not an Example, lacks a feature, or holds another type or number of values. The
                error names the feature and the stage; the caller adds file and offset.
        """
        data = payload if type(payload) is memoryview else memoryview(payload)
        spans = [(-1, -1)] * len(self._decoders)
        try:
            self._find(data, spans)
        except WireError as error:
            head = bytes(data[:8]).hex(" ")
            reason = f"a tf.train.Example is needed, got {len(data)} bytes that start with {head or 'nothing'}: {error}"
            raise ParseError(reason, stage=STAGE) from None
        out = []
        column = 0
        try:
            for decode, (start, end) in zip(self._decoders, spans, strict=True):
                value = decode(data, start, end) if end > start else None
                if value is None:
                    missing = self._missing[column]
                    value = _refuse(list(self.features.items())[column], data) if missing is None else missing()
                out.append(value)
                column += 1
        except WireError as error:
            start, end = spans[column]
            name = list(self.features)[column]
            head = bytes(data[start : min(end, start + 8)]).hex(" ")
            raise ParseError(f"feature {name!r} is damaged: {error}; it starts with {head}", stage=STAGE) from None
        return tuple(out)

    def _find(self, data: memoryview, spans: list[tuple[int, int]]) -> None:
        """Find the Feature message of each column; if a name occurs twice, the last one counts."""
        n = len(data)
        if n and data[0] == 10:
            size, start = varint(data, 1, n)
            if start + size == n:  # one field, as every writer makes it
                self._scan(data, start, n, spans)
                return
        for number, kind, start, end in fields(data, 0, n):
            if number == 1 and kind == BYTES:
                self._scan(data, start, end, spans)

    def _scan(self, data: memoryview, at: int, end: int, spans: list[tuple[int, int]]) -> None:
        """Scan the map of features in `data[at:end]`."""
        steps, first = self._steps.get, _word
        last = end - 4
        step: int | None = None
        while at <= last:
            (word,) = first(data, at)
            step = steps(word)
            if step:
                at += step
                continue
            if word & 255 != 10:
                break
            size, start = varint(data, at + 1, end)
            if size > end - start:
                raise WireError(f"a feature of {size} bytes is longer than the {end - start} that are left")
            at = start + size
            if 1 < size < 128 and word >> 16 & 255 == 10 and word >> 24 < 128 and word >> 24 not in self._lengths:
                self._steps[word] = step = size + 2  # its first 4 bytes alone tell that such an entry was not requested
            else:
                self._canonical(data, start, at, spans)
        if at > end:
            assert step is not None  # a step led there; the message is that of a parser that has learned no steps
            left = end - (at - step + 2)
            raise WireError(f"a feature of {step - 2} bytes is longer than the {left} that are left")
        for number, kind, start, stop in fields(data, at, end):  # forms that no well-known writer uses
            if number == 1 and kind == BYTES:
                self._entry(data, start, stop, spans)

    def _canonical(self, data: memoryview, start: int, end: int, spans: list[tuple[int, int]]) -> None:
        """Read one entry of the map in the form every writer uses, {1: name, 2: Feature}; others by `_entry`."""
        if end - start > 4 and data[start] == 10 and data[start + 1] < 128:
            length = data[start + 1]
            stop = start + 2 + length
            if stop + 1 < end and data[stop] == 0x12:
                size, at = varint(data, stop + 1, end)
                if at + size == end:
                    if length in self._lengths:
                        column = self._columns.get(bytes(data[start + 2 : stop]))
                        if column is not None:
                            spans[column] = at, end
                    return
        self._entry(data, start, end, spans)

    def _entry(self, data: memoryview, start: int, end: int, spans: list[tuple[int, int]]) -> None:
        """Read one entry of the map: {1: name, 2: Feature}, in any order."""
        if (
            1 < end - start < 128
            and data[start] == 10
            and data[start + 1] < 128
            and data[start + 1] not in self._lengths
        ):
            return  # a step would skip it: whether a record is good must not depend on the steps learned before
        name: bytes | None = b""
        span = start, start
        for number, kind, at, stop in fields(data, start, end):
            if number == 1 and kind == BYTES:
                name = bytes(data[at:stop]) if stop - at in self._lengths else None
            elif number == 2 and kind == BYTES:
                span = at, stop
        column = self._columns.get(name) if name is not None else None
        if column is not None:
            spans[column] = span


def _decoder(name: str, feature: Feature) -> _Decode:
    """Make the function from a Feature message to a value; it returns None for a message without a list."""
    if isinstance(feature, FixedLenFeature):
        if feature.shape == ():
            return _scalar(name, feature)
        return _array(name, feature, feature.shape, math.prod(feature.shape))
    if isinstance(feature, FixedLenSequenceFeature):
        return _array(name, feature, (-1, *feature.shape), None)
    return _array(name, feature, (-1,), None)


def _refuse(needed: tuple[str, Feature], record: memoryview) -> NoReturn:
    """Raise the error of a record that does not have a feature; it says which ones there are."""
    from difflib import get_close_matches

    name, feature = needed
    there: dict[str, Any] = {}
    with suppress(ParseError):  # it has none, or its other features are damaged, too
        there = feature_types(record)
    near = get_close_matches(name, there, 1) or [other for other in there if name in other.split("/")]
    found = ", ".join(f"{brief(other)} ({dtype or 'empty'})" for other, dtype in islice(there.items(), _MOST_NAMED))
    more = f" and {len(there) - _MOST_NAMED} more" if len(there) > _MOST_NAMED else ""
    raise ParseError(
        f"feature {name!r} ({feature.dtype}) is required, the record does not have it, but {found or 'nothing'}{more}; "
        + (f"did you mean {brief(near[0])}? Else " if near else "")
        + "give it a default_value if it may be missing",
        stage=STAGE,
    )


_MOST_NAMED = 20


def _missing(feature: Feature) -> Callable[[], Any] | None:
    """Make the function that returns the value of a feature the record does not have; None if it is required."""
    dtype = _NUMPY[feature.dtype]
    if isinstance(feature, FixedLenFeature):
        default = feature.default_value
        if default is None:
            return None
        if feature.shape == ():
            value = default if feature.dtype == "bytes" else dtype(default)
            return lambda: value
        return lambda: np.array(default, dtype).reshape(feature.shape)
    shape = (0, *feature.shape) if isinstance(feature, FixedLenSequenceFeature) else (0,)
    return lambda: np.empty(shape, dtype)


def _scalar(name: str, feature: FixedLenFeature) -> _Decode:
    """Make the function that decodes one value; it tries the form that every writer uses first, fully checked."""
    general = _array(name, feature, (1,), 1)
    want = _TAGS[feature.dtype]

    def number(data: memoryview, start: int, end: int) -> Any:
        if end - start > 4:
            tag, size, list_tag, length = _four(data, start)
            # {3: {1: packed [one byte or more]}}, {2: {1: packed [4 bytes]}}
            if tag == want and list_tag == 10 and size == end - start - 2 and length == size - 2:
                if want == 0x1A:
                    value = data[start + 4]
                    if value < 128:
                        if length == 1:
                            return np.int64(value)
                    else:
                        value, stop = varint(data, start + 4, end)
                        if stop == end:
                            return np.int64(value - (1 << 64) if value >> 63 else value)
                elif length == 4:
                    return np.float32(_float(data, start + 4)[0])
        values = general(data, start, end)
        return None if values is None else values[0]

    def blob(data: memoryview, start: int, end: int) -> Any:
        if data[start] == 0x0A:
            size, at = varint(data, start + 1, end)
            if at + size == end and size and data[at] == 0x0A:
                length, at = varint(data, at + 1, end)
                if at + length == end:
                    return data[at:end]
        values = general(data, start, end)
        return None if values is None else values[0]

    if feature.dtype != "bytes":
        return number
    return blob if gil_is_on() else lambda data, start, end: handed_over(blob(data, start, end))


def _array(name: str, feature: Feature, shape: tuple[int, ...], count: int | None) -> _Decode:
    """Make the function that decodes values and checks their number: against `count`, or the shape of an item."""
    dtype = feature.dtype
    step = math.prod(shape[1:])

    def decode(data: memoryview, start: int, end: int) -> Any:
        kind = 0
        lists: list[tuple[int, int]] = []
        for number, wire, at, stop in fields(data, start, end):
            if number in _KINDS and wire == BYTES:
                if number != kind:  # of several kinds the last one counts; lists of one kind are joined
                    kind, lists = number, []
                if stop > at:
                    lists.append((at, stop))
        if not kind:
            return None
        if _KINDS[kind] != dtype:
            raise ParseError(f"feature {name!r} needs {dtype}, the record holds {_KINDS[kind]}", stage=STAGE)
        values = _READ[dtype](data, lists)
        found = len(values)
        if count is not None and found != count:
            what = "one value" if count == 1 else f"{count} values"
            raise ParseError(f"feature {name!r} needs {what}, the record holds {found}", stage=STAGE)
        if step > 1 and found % step:
            items = f"{step} values for items of shape {shape[1:]}"
            raise ParseError(f"feature {name!r} needs a multiple of {items}, the record holds {found}", stage=STAGE)
        return values.reshape(shape)

    return decode


def _read_bytes(data: memoryview, lists: list[tuple[int, int]]) -> Any:
    found = [
        bytes(data[at:stop])
        for start, end in lists
        for number, wire, at, stop in fields(data, start, end)
        if number == 1 and _expect(wire, BYTES)
    ]
    out = np.empty(len(found), object)
    out[:] = found
    return out


def _read_floats(data: memoryview, lists: list[tuple[int, int]]) -> Any:
    joined = bytearray()  # not a list of pieces: a view takes 40 times the bytes of one float
    for start, end in lists:
        for number, wire, at, stop in fields(data, start, end):
            if number == 1 and _expect(wire, BYTES, FIXED32):
                if (stop - at) % 4:
                    raise WireError(f"packed floats take 4 bytes each, {stop - at} are there")
                joined += data[at:stop]
    return np.frombuffer(joined, "<f4").astype(np.float32)  # a copy: arrays own their numbers


def _read_ints(data: memoryview, lists: list[tuple[int, int]]) -> Any:
    piece = data[:0]
    joined: bytearray | None = None  # all pieces, if there are several
    for start, end in lists:
        for number, wire, at, stop in fields(data, start, end):
            if number == 1 and _expect(wire, BYTES, VARINT) and stop > at:
                if not len(piece):
                    piece = data[at:stop]
                    continue
                if joined is None:
                    joined = bytearray(piece)
                if joined[-1] > 127:  # it would merge with the first number of this piece
                    raise WireError("a number is truncated")
                joined += data[at:stop]
    return np.asarray(varints(piece if joined is None else memoryview(joined)), np.int64)


_READ: dict[str, Callable[[memoryview, list[tuple[int, int]]], Any]] = {
    "bytes": _read_bytes,
    "float32": _read_floats,
    "int64": _read_ints,
}


def _expect(wire: int, *known: int) -> bool:
    if wire not in known:
        raise WireError(f"values of wire type {wire} do not belong in this list")
    return True
