"""Fuzz target: the Example parser.

The first byte chooses the features that are asked for, and a low bound; the second says how many bytes are a record
that is parsed before: what a parser learns from one record must not show in the next.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np

from gpupipe.errors import ParseError
from gpupipe.extract.examples import wire
from gpupipe.extract.examples.example import ExampleParser
from gpupipe.extract.examples.features import (
    Feature,
    FixedLenFeature,
    FixedLenSequenceFeature,
    RaggedFeature,
    VarLenFeature,
)
from tests.fuzz.bounds import lowered

LOW = 8

ASKED: tuple[dict[str, Feature], ...] = (
    {
        "image": FixedLenFeature((), bytes), "label": FixedLenFeature((), "int64", -1),
        "score": FixedLenFeature((), "float32", 0.5), "boxes": VarLenFeature("float32"),
        "many": FixedLenSequenceFeature((2,), "int64", True), "names": VarLenFeature(bytes),
    },
    {
        "": VarLenFeature("int64"), "a": RaggedFeature("int64"), "bb": RaggedFeature("float32"),
        "cc": RaggedFeature(bytes),
    },
    {
        "a": FixedLenFeature((2,), "int64", (1, 2)), "b": FixedLenFeature((2, 1), "float32", (1, 2)),
        "c": FixedLenFeature((2,), bytes, ("x", "y")), "d": FixedLenSequenceFeature((), bytes, True),
        "e": FixedLenSequenceFeature((1, 3), "float32", True), "f": FixedLenFeature((), bytes, b"none"),
    },
    {"a": FixedLenFeature((), "int64"), "b": FixedLenFeature((), "float32")},
)  # fmt: skip
PARSERS = tuple(map(ExampleParser, ASKED))
NUMPY: dict[str, Any] = {"bytes": object, "int64": np.int64, "float32": np.float32}


def one(data: bytes, thorough: bool = True) -> None:
    """Parse two records with one parser; if `thorough`, compare each with the model."""
    if len(data) < 2:
        return
    with lowered(wire, _PIECE=16) if data[0] & LOW else contextlib.nullcontext():
        parsed(data, thorough)


def parsed(data: bytes, thorough: bool) -> None:
    """Parse the two records."""
    chosen, before = data[0] & 3, data[1]
    parser = PARSERS[chosen]
    parser._steps.clear()  # so that an input alone decides what happens
    for record in (data[2 : 2 + before], data[2 + before :])[not before :]:
        try:
            got: tuple[Any, ...] | None = parser.parse(record)
        except ParseError as error:
            assert error.stage == "parse_single_example" and len(str(error)) < 400
            got = None
        if not thorough:
            continue
        expected = parse_slowly(record, ASKED[chosen])
        assert (got is None) == (expected is None), (got, expected)
        if got is not None and expected is not None:
            for value, wanted, feature in zip(got, expected, ASKED[chosen].values(), strict=True):
                same(value, wanted, feature)
    assert len(parser._steps) <= 1 << 14


def same(value: Any, wanted: list[Any], feature: Feature) -> None:
    """Compare one value with the list that the model gives."""
    fixed = isinstance(feature, FixedLenFeature)
    shape, dtype = getattr(feature, "shape", ()), NUMPY[feature.dtype]
    if fixed and shape == () and feature.dtype == "bytes":
        assert [bytes(value)] == wanted
        return
    assert value.shape == (shape if fixed else (value.shape[0], *shape))
    assert value.dtype == dtype
    if feature.dtype == "bytes":
        assert list(value.ravel()) == wanted
    else:
        assert value.tobytes() == np.array(wanted, dtype).tobytes()


class Wrong(Exception):
    """The model refuses the record."""


def parse_slowly(data: bytes, features: dict[str, Feature]) -> list[list[Any]] | None:
    """What a record holds of each feature, None if it is refused. It takes all apart and looks at every byte."""
    try:
        found = entries(data, features)
        return [values(name, feature, found.get(name.encode(), b"")) for name, feature in features.items()]
    except Wrong:
        return None


def entries(data: bytes, features: dict[str, Feature]) -> dict[bytes, bytes]:
    """Name -> Feature message, of all entries that are looked at; the last one of a name."""
    lengths = {len(name.encode()) for name in features}
    found: dict[bytes, bytes] = {}
    for number, kind, inner in message(data):
        if (number, kind) != (1, 2):
            continue
        for number, kind, entry in message(inner):
            if (number, kind) != (1, 2):
                continue
            if 2 <= len(entry) < 128 and entry[0] == 10 and entry[1] < 128 and entry[1] not in lengths:
                continue  # known by its first bytes not to be asked for: skipped as a whole
            name = feature = b""
            for number, kind, part in message(entry):
                if (number, kind) == (1, 2):
                    name = part
                elif (number, kind) == (2, 2):
                    feature = part
            found[name] = feature
    return found


def values(name: str, feature: Feature, data: bytes) -> list[Any]:
    """The values of a Feature message, or the default."""
    held, lists = 0, list[bytes]()
    for number, kind, part in message(data):
        if number in (1, 2, 3) and kind == 2:
            lists = [*lists, part] if number == held else [part]  # several of one kind follow one another
            held = number
    if not held:
        default = feature.default_value if isinstance(feature, FixedLenFeature) else ()
        if default is None:
            raise Wrong(name)
        return list(default) if isinstance(default, tuple) else [default]
    if {1: "bytes", 2: "float32", 3: "int64"}[held] != feature.dtype:
        raise Wrong(name)
    out: list[Any] = []
    for number, kind, part in (one for lines in lists for one in message(lines)):
        if number != 1:
            continue
        if held == 1 and kind == 2:
            out.append(part)
        elif held == 2 and kind in (2, 5):
            if len(part) % 4:
                raise Wrong(name)
            out.extend(np.frombuffer(part, "<f4"))
        elif held == 3 and kind in (0, 2):
            at = 0
            while at < len(part):
                value, at = number_at(part, at)
                out.append(value - (1 << 64) if value >> 63 else value)
        else:
            raise Wrong(name)
    shape = feature.shape if isinstance(feature, FixedLenFeature | FixedLenSequenceFeature) else ()
    if isinstance(feature, FixedLenFeature) and len(out) != math.prod(shape):
        raise Wrong(name)
    if len(out) % math.prod(shape):
        raise Wrong(name)
    return out


def message(data: bytes) -> list[tuple[int, int, bytes]]:
    """The fields of a message: number, wire type, bytes."""
    out = []
    at = 0
    while at < len(data):
        tag, at = number_at(data, at)
        kind = tag & 7
        if kind == 0:
            length = number_at(data, at)[1] - at
        elif kind == 2:
            length, at = number_at(data, at)
        else:
            length = {1: 8, 5: 4}.get(kind, -1)
        if tag < 8 or length < 0 or at + length > len(data):
            raise Wrong(tag)
        out.append((tag >> 3, kind, data[at : at + length]))
        at += length
    return out


def number_at(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at `at`, modulo 2**64, and where it ends."""
    value = 0
    for k in range(10):
        if at + k >= len(data):
            break
        value |= (data[at + k] & 127) << 7 * k
        if data[at + k] < 128:
            return value & (1 << 64) - 1, at + k + 1
    raise Wrong(at)
