"""tf.train.Example: known answers, every kind of feature, and errors that name the feature."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpupipe.errors import ParseError, PlanError, PlanTypeError
from gpupipe.extract.examples.encode import encode_example
from gpupipe.extract.examples.example import ExampleParser
from gpupipe.extract.examples.features import (
    Feature,
    FixedLenFeature,
    FixedLenSequenceFeature,
    RaggedFeature,
    VarLenFeature,
)
from gpupipe.extract.storage.sharing import gil_is_on

KNOWN = [
    ("label", 7, "0a100a0e0a056c6162656c12051a030a0107"),
    ("n", [-1, 300], "0a170a150a016e12101a0e0a0cffffffffffffffffff01ac02"),
    ("box", [0.5, 1.0], "0a150a130a03626f78120c120a0a080000003f0000803f"),
    ("img", b"\xff\xd8", "0a0f0a0d0a03696d6712060a040a02ffd8"),
]


def one(payload: bytes, feature: Feature, name: str = "x") -> Any:
    return ExampleParser({name: feature}).parse(payload)[0]


def wrap(number: int, data: bytes) -> bytes:
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def example(feature: bytes, name: bytes = b"x") -> bytes:
    return wrap(1, wrap(1, wrap(1, name) + wrap(2, feature)))


@pytest.mark.parametrize(("name", "value", "text"), KNOWN)
def test_encoding_gives_the_known_answers(name: str, value: Any, text: str) -> None:
    assert encode_example({name: value}).hex() == text


@pytest.mark.skipif(not gil_is_on(), reason="without the GIL threads hand bytes to one another")
def test_a_single_image_is_not_copied() -> None:
    payload = encode_example({"x": bytes(100_000)})

    image = one(payload, FixedLenFeature((), bytes))

    assert isinstance(image, memoryview)
    assert image.obj is payload


@pytest.mark.parametrize(
    ("feature", "dtype", "values"),
    [
        (wrap(3, wrap(1, b"\x05") + b"\x08\x06"), "int64", [5, 6]),
        (wrap(3, wrap(1, b"\1")) + wrap(3, wrap(1, b"\2")), "int64", [1, 2]),
        (wrap(2, wrap(1, b"\0\0\0\x3f")) + wrap(3, wrap(1, b"\2")), "int64", [2]),
        (wrap(1, wrap(1, b"a") + wrap(1, b"")), "bytes", [b"a", b""]),
        (wrap(3, wrap(1, b"\x05")) + b"\x48\x07", "int64", [5]),
    ],
    ids=["mixed", "merged", "last kind", "blobs", "unknown field"],
)
def test_lists_in_parts_and_of_several_kinds_are_read(feature: bytes, dtype: str, values: list[Any]) -> None:
    assert one(example(feature), VarLenFeature(dtype)).tolist() == values
    if len(values) == 1:
        assert one(example(feature), FixedLenFeature((), dtype)) == values[0]


def test_one_parser_reads_records_of_different_layout() -> None:
    parser = ExampleParser({"label": FixedLenFeature((), np.dtype("int64")), "y": VarLenFeature("int64")})
    for k in range(300):
        other = {f"{'n' * (k % 9 + 1)}": [1] * (k % 90), "label": k, "other": "z" * k}
        payload = encode_example({name: value for name, value in other.items() if value != []})

        assert parser.parse(payload)[0] == k


def test_defaults_are_not_shared() -> None:
    parser = ExampleParser({"x": FixedLenFeature((2,), "int64", [1, 2])})
    parser.parse(b"")[0][:] = 9

    assert parser.parse(b"")[0].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("value", "feature", "match"),
    [
        (None, FixedLenFeature((), "int64"), r"'x' \(int64\) is required, the record does not have it"),
        (5, FixedLenFeature((), "float32"), "'x' needs float32, the record holds int64"),
        (5, VarLenFeature(bytes), "'x' needs bytes, the record holds int64"),
        (b"a", FixedLenFeature((), "int64"), "'x' needs int64, the record holds bytes"),
        ([1, 2, 3], FixedLenFeature((2, 2), "int64"), "'x' needs 4 values, the record holds 3"),
        ([1, 2], FixedLenFeature((), "int64"), "'x' needs one value, the record holds 2"),
        (
            [1, 2, 3],
            FixedLenSequenceFeature((2,), "int64", True),
            "'x' needs a multiple of 2 values for items of shape .*holds 3",
        ),
    ],
)
def test_what_is_not_as_described_is_an_error(value: Any, feature: Feature, match: str) -> None:
    payload = encode_example({"y": 1} if value is None else {"x": value})

    with pytest.raises(ParseError, match=match) as caught:
        one(payload, feature)
    assert caught.value.stage == "parse_single_example"


@pytest.mark.parametrize(
    "payload",
    [b"garbage that is no protobuf", b"\x0a", b"\x0a\x05\x0a\x10ab", b"\x0b\x01", wrap(1, b"\x0a\x7f\x0a\x01x")],
)
def test_garbage_is_a_parse_error_with_a_short_prefix(payload: bytes) -> None:
    with pytest.raises(ParseError, match=payload[:8].hex(" ")) as caught:
        one(payload, FixedLenFeature((), "int64", 0))
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    "feature",
    [
        wrap(3, b"\x09" + bytes(8)),
        wrap(3, wrap(1, b"\xff")),
        wrap(3, wrap(1, b"\1" * 40 + b"\xff" * 11 + b"\1")),
        wrap(3, b"\x0a\x50\x01"),
        wrap(2, wrap(1, b"\0\0\0")),
    ],
    ids=["wire type", "cut", "long in many", "list", "float"],
)
def test_a_damaged_feature_is_named(feature: bytes) -> None:
    dtype = "float32" if feature[0] == 0x12 else "int64"
    for description in (FixedLenFeature((), dtype), VarLenFeature(dtype)):
        with pytest.raises(ParseError, match=r"feature 'x' is damaged: .*starts with"):
            one(example(feature), description)


def test_parsers_need_features() -> None:
    with pytest.raises(PlanError, match="at least one feature"):
        ExampleParser({})
    with pytest.raises(PlanTypeError, match="'x' needs a description"):
        ExampleParser({"x": "int64"})  # type: ignore[dict-item]
    with pytest.raises(PlanTypeError, match="dict of features, got list"):
        ExampleParser([])  # type: ignore[arg-type]
    with pytest.raises(PlanTypeError, match="names of features"):
        ExampleParser({1: VarLenFeature("int64")})  # type: ignore[dict-item]


@pytest.mark.parametrize("dtype", ["float64", np.float64, "int32", bool, int, float, None, np.uint8, 3.5, "x"])
def test_other_dtypes_are_refused(dtype: Any) -> None:
    for make in (lambda: FixedLenFeature((), dtype), lambda: VarLenFeature(dtype), lambda: RaggedFeature(dtype)):
        with pytest.raises(PlanError, match="needs dtype bytes"):
            make()


def test_the_error_says_which_one_to_write() -> None:
    for dtype, instead in ((int, "int64"), ("uint8", "int64"), (float, "float32"), (np.float16, "float32")):
        with pytest.raises(PlanError, match=f'stores nothing else: write "{instead}"'):
            FixedLenFeature((), dtype)


UNKNOWN: Any = (None,)
TEXT: Any = "ab"
HALF: Any = (1.5,)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: FixedLenFeature(UNKNOWN, "int64"), "known dimensions"),
        (lambda: FixedLenFeature(TEXT, "int64"), "whole numbers"),
        (lambda: FixedLenFeature(HALF, "int64"), "whole numbers"),
        (lambda: FixedLenFeature((2,), "int64", 1), "default_value of 2 values, got 1"),
        (lambda: FixedLenFeature((), "int64", 1.5), "default_value of that type"),
        (lambda: FixedLenFeature((), "int64", 2**63), "default_value of that type"),
        (lambda: FixedLenFeature((), "int64", True), "default_value of that type"),
        (lambda: FixedLenFeature((), bytes, 1), "default_value of that type"),
        (lambda: FixedLenSequenceFeature((), "int64"), "allow_missing=True"),
        (lambda: FixedLenSequenceFeature((0,), "int64", True), "above 0"),
        (lambda: FixedLenSequenceFeature((2,), "int64", True, [1, 2]), "one default_value"),
    ],
)
def test_wrong_descriptions_are_refused_at_construction(make: Any, match: str) -> None:
    with pytest.raises(PlanError, match=match):
        make()


@pytest.mark.parametrize(
    ("value", "error", "match"),
    [
        (True, PlanTypeError, "got True"),
        (None, PlanTypeError, "got None"),
        ([1, "a"], PlanTypeError, "got int and str"),
        ([1, 2.5], PlanTypeError, "got int and float"),
        ([b"a", 1], PlanTypeError, "got bytes and int"),
        ([1.5, 2], PlanTypeError, "got float and int"),
        ([1, None], PlanTypeError, "got None"),
        (2**63, PlanError, "beyond int64"),
        (1e300, PlanError, "beyond float32"),
        ([], PlanError, "empty list has no type"),
        (np.array([True]), PlanTypeError, "got bool"),
        (np.array([b"a"]), PlanTypeError, "loses zero bytes"),
        ({"a": 1}, PlanTypeError, "got dict"),
    ],
)
def test_values_no_example_can_hold_are_refused(value: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=f"'x'.*{match}"):
        encode_example({"x": value})


def test_every_value_an_example_can_hold_comes_back() -> None:
    values: dict[str, tuple[Any, Any, list[Any]]] = {
        "i": ("int64", np.int32(4), [4]),
        "u": ("int64", np.arange(6, dtype=np.uint8).reshape(2, 3), [0, 1, 2, 3, 4, 5]),
        "f": ("float32", np.float16(0.5), [0.5]),
        "d": ("float32", np.array([[1.5], [float("inf")]]), [1.5, float("inf")]),
        "s": (bytes, "é", ["é".encode()]),
        "b": (bytes, [b"\0", "x", bytearray(b"y")], [b"\0", b"x", b"y"]),
        "o": (bytes, np.array([b"a\0", b""], object), [b"a\0", b""]),
        "none": ("int64", np.array([], np.int64), []),
        "t": (bytes, ("x", "y"), [b"x", b"y"]),
    }
    payload = encode_example({name: value for name, (_, value, _) in values.items()})

    got = ExampleParser({name: VarLenFeature(kind) for name, (kind, _, _) in values.items()}).parse(payload)

    assert [x.tolist() for x in got] == [wanted for _, _, wanted in values.values()]
