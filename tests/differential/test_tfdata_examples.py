"""Records, Examples and files of them, row by row, on tf.data and on gpupipe."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from tests.behaviour.model import run
from tests.differential.tfdata_sides import Chain, on, outcomes, same_type, shown

pytestmark = [pytest.mark.tf, pytest.mark.filterwarnings("ignore")]


def _field(number: int, payload: bytes) -> bytes:
    """A length-delimited field of a message."""
    return bytes([number << 3 | 2, len(payload)]) + payload


def _record(**features: bytes) -> bytes:
    """An Example whose features are given as their own bytes."""
    entries = [_field(1, _field(1, name.encode()) + _field(2, data)) for name, data in features.items()]
    return _field(1, b"".join(entries))


def _example(**features: Any) -> bytes:
    return gp.io.encode_example(features)


Feature = Callable[[Any, Any], Any]


def _types(D: Any) -> Any:
    """The dtypes of features."""
    return SimpleNamespace(int="int64", float="float32", text=on(D).text)


def fixed(shape: Any, kind: str, **given: Any) -> Feature:
    return lambda io, t: io.FixedLenFeature(shape, getattr(t, kind), **given)


def sequence(shape: Any, kind: str, **given: Any) -> Feature:
    return lambda io, t: io.FixedLenSequenceFeature(shape, getattr(t, kind), allow_missing=True, **given)


def var(kind: str) -> Feature:
    return lambda io, t: io.VarLenFeature(getattr(t, kind))


def ragged(kind: str) -> Feature:
    return lambda io, t: io.RaggedFeature(getattr(t, kind))


LACKS, EMPTY = _example(y=1), _record(x=_field(3, b""))

EXAMPLES: dict[str, tuple[bytes, Feature]] = {
    "fixed scalar": (_example(x=7), fixed((), "int")),
    "fixed matrix": (_example(x=[1, 2, 3, 4, 5, 6]), fixed([2, 3], "int")),
    "fixed text": (_example(x=b"a\0b\0"), fixed([], "text")),
    "fixed texts": (_example(x=[b"a", b"", b"\xff\xd8"]), fixed([3], "text")),
    "fixed no values": (EMPTY, fixed([0], "int")),
    "fixed negative": (_example(x=[-1, -(2**63), 2**63 - 1]), fixed([3], "int")),
    "fixed special floats": (_example(x=[1e-45, 3.4e38, -0.0]), fixed([3], "float")),
    "default": (LACKS, fixed((), "int", default_value=-1)),
    "default of text": (LACKS, fixed((), "text", default_value="none")),
    "default of a vector": (LACKS, fixed([2], "int", default_value=[3, 4])),
    "default of no features": (b"", fixed((), "int", default_value=-1)),
    "default of a feature without a list": (_record(x=b""), fixed((), "int", default_value=-1)),
    "sequence": (_example(x=[1, 2, 3]), sequence([], "int")),
    "sequence of pairs": (_example(x=[1.0, 2.0, 3.0, 4.0]), sequence([2], "float")),
    "sequence missing": (LACKS, sequence([2], "int")),
    "var": (_example(x=[3, 1, 2]), var("int")),
    "var missing": (LACKS, var("int")),
    "var empty": (EMPTY, var("int")),
    "ragged": (_example(x=[3, 1, 2]), ragged("int")),
    "unpacked int": (_record(x=_field(3, b"\x08\x05\x08\xac\x02")), var("int")),
    "packed int": (_record(x=_field(3, _field(1, b"\x05\xac\x02"))), fixed([2], "int")),
    "unpacked float": (_record(x=_field(2, b"\x0d\x00\x00\x00\x3f\x0d\x00\x00\x80\x3f")), fixed([2], "float")),
    "packed float": (_record(x=_field(2, _field(1, b"\x00\x00\x00\x3f\x00\x00\x80\x3f"))), var("float")),
    "a key twice": (_record(x=_field(3, b"\x08\x05")) + _record(x=_field(3, b"\x08\x06")), var("int")),
    "several features": (
        _example(a=1, b=[0.5, 1.5], c=[b"x"], d=[4, 5, 6]),
        lambda io, t: {
            "d": io.VarLenFeature(t.int),
            "a": io.FixedLenFeature((), t.int),
            "missing": io.FixedLenFeature((), t.float, default_value=2.5),
            "c": io.FixedLenFeature([1], t.text),
            "b": io.FixedLenSequenceFeature([1], t.float, allow_missing=True),
        },
    ),
}


def _features(D: Any, feature: Feature) -> dict[str, Any]:
    made = feature(on(D).io, _types(D))
    return made if isinstance(made, dict) else {"x": made}


def _parsed(value: Any) -> Any:
    """Values of a feature; of a sparse or ragged one a list, in a batch a list of lists."""
    if isinstance(value, dict):
        return {key: _parsed(part) for key, part in value.items()}
    if hasattr(value, "dense_shape"):
        flat = list(zip(value.indices.numpy().tolist(), value.values.numpy().tolist(), strict=True))
        if len(value.dense_shape) == 1:
            return [item for _, item in flat]
        return [[item for (row, _), item in flat if row == i] for i in range(int(value.dense_shape[0]))]
    return shown(value)["ragged"] if hasattr(value, "to_list") else shown(value)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_parsed_alike(tf: Any, name: str) -> None:
    record, feature = EXAMPLES[name]
    theirs, ours = (_features(D, feature) for D in (tf.data.Dataset, gp.Dataset))
    expected = tf.io.parse_single_example(record, theirs)

    got = gp.io.parse_single_example(record, ours)
    assert _parsed(got) == _parsed(expected)
    for key, value in got.items():
        if not hasattr(expected[key], "dense_shape"):
            assert same_type(expected[key].numpy(), value), key
    (mapped,) = gp.Dataset.from_tensors(record).map(lambda r: gp.io.parse_single_example(r, ours))
    assert _parsed(mapped) == _parsed(expected)


ROWS = [_example(x=[1, 2], y=b"a", z=[1.0]), _example(x=[3, 4], y=b"", z=[1.0, 2.0, 3.0]), _example(x=[5, 6], y=b"c")]

BATCHED: dict[str, dict[str, Feature]] = {
    "fixed": {"x": fixed([2], "int")},
    "fixed text": {"y": fixed([], "text")},
    "default": {"w": fixed([], "float", default_value=1.5)},
    "fixed matrix": {"x": fixed([1, 2], "int")},
    "sequence": {"z": sequence([], "float")},
    "sequence of pairs": {"x": sequence([2], "int")},
    "sequence missing in all": {"w": sequence([], "text")},
    "sequence default": {"z": sequence([], "float", default_value=-1.0)},
    "var text": {"y": var("text")},
    "ragged": {"z": ragged("float"), "x": ragged("int")},
    "several": {"x": fixed([2], "int"), "z": var("float")},
}


@pytest.mark.parametrize("name", BATCHED)
def test_batches_of_examples_are_parsed_alike(tf: Any, name: str) -> None:
    theirs, ours = (
        {key: feature(on(D).io, _types(D)) for key, feature in BATCHED[name].items()}
        for D in (tf.data.Dataset, gp.Dataset)
    )

    for records in (ROWS, ROWS[:1]):
        assert _parsed(gp.io.parse_example(records, ours)) == _parsed(tf.io.parse_example(records, theirs))
    if all(isinstance(feature, gp.io.FixedLenFeature) for feature in ours.values()):
        mapped = gp.Dataset.from_tensor_slices(ROWS).batch(2).map(lambda r: gp.io.parse_example(r, ours))
        same = tf.data.Dataset.from_tensor_slices(ROWS).batch(2).map(lambda r: tf.io.parse_example(r, theirs))
        assert [_parsed(x) for x in mapped] == [_parsed(x) for x in same]


WRONG_EXAMPLES: dict[str, tuple[bytes, Feature]] = {
    "missing": (LACKS, fixed((), "int")),
    "another kind": (_example(x=1), fixed((), "float")),
    "another kind, var": (_example(x=b"a"), var("int")),
    "another kind, ragged": (_example(x=b"a"), ragged("int")),
    "another kind, sequence": (_example(x=0.5), sequence([], "int")),
    "another kind with a default": (_example(x=1), fixed((), "float", default_value=0.0)),
    "too many": (_example(x=[1, 2]), fixed((), "int")),
    "too few": (_example(x=[1, 2]), fixed([3], "int")),
    "present and empty": (EMPTY, fixed((), "int", default_value=-1)),
    "not divisible": (_example(x=[1, 2, 3]), sequence([2], "int")),
    "no Example": (b"no example at all", fixed((), "int")),
    "cut": (_example(x=[1, 2, 3])[:-2], fixed([3], "int")),
    "missing in no features": (b"", fixed((), "text")),
}


@pytest.mark.parametrize("name", WRONG_EXAMPLES)
def test_what_is_no_such_example_is_a_data_error(tf: Any, name: str) -> None:
    record, feature = WRONG_EXAMPLES[name]
    theirs, ours = (_features(D, feature) for D in (tf.data.Dataset, gp.Dataset))

    with pytest.raises((tf.errors.InvalidArgumentError, UnicodeDecodeError)):
        tf.io.parse_single_example(record, theirs)
    with pytest.raises(gp.DataError):
        gp.io.parse_single_example(record, ours)
    with pytest.raises(gp.DataError):
        gp.io.parse_example([record], ours)
    with pytest.raises(gp.DataError):
        list(gp.Dataset.from_tensors(record).map(lambda r: gp.io.parse_single_example(r, ours)))


WRONG_FEATURES: dict[str, Feature] = {
    "default of another number": fixed([2], "int", default_value=[1, 2, 3]),
    "a dtype that no Example has": lambda io, t: io.FixedLenFeature([], "int32"),
    "a dtype that no Example has, var": lambda io, t: io.VarLenFeature("float64"),
    "an unknown dimension": fixed([None], "int"),
    "a sequence that may not be missing": lambda io, t: io.FixedLenSequenceFeature([], t.int),
    "no features": lambda io, t: {},
    "no feature": lambda io, t: {"x": "int64"},
}


@pytest.mark.parametrize("name", WRONG_FEATURES)
def test_features_that_cannot_be_are_mistakes(tf: Any, name: str) -> None:
    with pytest.raises((ValueError, TypeError, tf.errors.OpError)):
        tf.io.parse_single_example(LACKS, _features(tf.data.Dataset, WRONG_FEATURES[name]))
    with pytest.raises(gp.PlanError):
        gp.io.parse_single_example(LACKS, _features(gp.Dataset, WRONG_FEATURES[name]))


def test_file_names_come_in_every_form(tf: Any, tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in "abc"]
    for i, name in enumerate(names):
        with tf.io.TFRecordWriter(name) as out:
            for j in range(3):
                out.write(b"%d%d" % (i, j))
    forms: dict[str, Chain] = {
        "one": lambda D: names[0],
        "a list": lambda D: names,
        "a nested list": lambda D: [names[:2], names[1:]],
        "a path": lambda D: Path(names[1]),
        "an array": lambda D: np.array(names),
        "a dataset": lambda D: D.from_tensor_slices(names[::-1]),
        "a dataset of a pattern": lambda D: D.list_files(f"{tmp_path}/*", shuffle=False),
        "patterns, files twice": lambda D: D.list_files([names[2], f"{tmp_path}/*"], shuffle=False),
        "none": lambda D: [],
    }
    for form, given_names in forms.items():
        for reads in (None, 2):
            chains = (
                on(D).TFRecordDataset(given_names(D), num_parallel_reads=reads) for D in (tf.data.Dataset, gp.Dataset)
            )
            expected, got = (run(chain.as_numpy_iterator()) for chain in chains)
            assert got == expected, form
    for D in (tf.data.Dataset, gp.Dataset):
        nested = D.from_tensor_slices(names).interleave(on(D).TFRecordDataset, cycle_length=2, block_length=2)
        assert run(nested.as_numpy_iterator()) == [b"00", b"01", b"10", b"11", b"02", b"12", b"20", b"21", b"22"]


def test_files_are_listed_alike(tf: Any, tmp_path: Path) -> None:
    for name in ("b", "a", "c.x", "a1"):
        (tmp_path / name).write_bytes(b"")
    for pattern in ("*", "a*", "?", "[ab]", "*.x"):
        path = f"{tmp_path}/{pattern}"
        expected = list(tf.data.Dataset.list_files(path, shuffle=False).as_numpy_iterator())

        assert run(gp.Dataset.list_files(path, shuffle=False)) == expected
        assert sorted(run(gp.Dataset.list_files(path))) == expected


def test_listed_files_are_shuffled_unless_told(tf: Any, tmp_path: Path) -> None:
    names = sorted(f"{tmp_path}/{i:02}".encode() for i in range(20))
    for name in names:
        Path(os.fsdecode(name)).write_bytes(b"")
    (tmp_path / "05.d").mkdir()
    for D in (tf.data.Dataset, gp.Dataset):
        shuffled = D.list_files(f"{tmp_path}/??", seed=1)
        passes = [run(shuffled.as_numpy_iterator()) for _ in range(2)]
        assert sorted(passes[0]) == sorted(passes[1]) == names
        assert passes[0] != passes[1]  # another order in each epoch, even with a seed
        assert run(D.list_files(f"{tmp_path}/*.d", shuffle=False).as_numpy_iterator()) == [f"{tmp_path}/05.d".encode()]
        twice = D.list_files([f"{tmp_path}/0[12]", f"{tmp_path}/01"], shuffle=False)
        assert run(twice.as_numpy_iterator()) == [names[1], names[1], names[2]]


# What a fault of a file gives on each side: there the rest of the file is lost with the record; here only where nobody
# can say where the next one begins.
FAULTS: dict[str, tuple[Callable[[bytes], bytes], list[Any], list[Any]]] = {
    "none": (lambda data: data, [b"one", b"two", b"three"], [b"one", b"two", b"three"]),
    "payload changed": (lambda data: data[:13] + b"X" + data[14:], ["error"], ["error", b"two", b"three"]),
    "cut in a payload": (lambda data: data[:33], [b"one", "error"], [b"one", "error"]),
    "cut in a header": (lambda data: data[:24], [b"one"], [b"one", "error"]),
    "cut between records": (lambda data: data[:38], [b"one", b"two"], [b"one", b"two"]),
    "no records at all": (lambda data: b"this is a text, no records", ["error"], ["error"]),
    "empty": (lambda data: b"", [], []),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_of_files(tf: Any, tmp_path: Path, name: str) -> None:
    fault, theirs, ours = FAULTS[name]
    with gp.io.TFRecordWriter(tmp_path / "x") as out:
        for record in (b"one", b"two", b"three"):
            out.write(record)
    (tmp_path / "x").write_bytes(fault((tmp_path / "x").read_bytes()))

    assert outcomes(tf, tf.data.TFRecordDataset(str(tmp_path / "x")), most=5) == theirs
    assert outcomes(tf, gp.TFRecordDataset(tmp_path / "x"), most=5) == ours
