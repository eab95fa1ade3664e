"""Damage at random: whatever the bytes, only data errors come out, and an end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpupipe.extract.examples.encode import encode_example
from gpupipe.extract.examples.example import ExampleParser
from gpupipe.extract.examples.features import VarLenFeature
from tests.fuzz.replay import CORPUS, TARGETS, inputs, target

FUZZ = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

EDIT = st.tuples(st.sampled_from(["flip", "set", "cut", "drop", "insert"]), st.floats(0, 1), st.binary(max_size=12))


def damaged(data: bytes, edits: list[tuple[str, float, bytes]]) -> bytes:
    for kind, where, piece in edits:
        at = int(where * len(data))
        if kind == "flip":
            data = data[:at] + bytes(x ^ 1 << k % 8 for k, x in enumerate(data[at : at + 1])) + data[at + 1 :]
        elif kind == "set":
            data = data[:at] + piece + data[at + len(piece) :]
        elif kind == "cut":
            data = data[:at]
        elif kind == "drop":
            data = data[:at] + data[at + len(piece) :]
        else:
            data = data[:at] + piece + data[at:]
    return data


SAVED = {name: [data for _, data in inputs(CORPUS / name)] for name in TARGETS}


value = st.one_of(
    st.binary(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(width=32, allow_nan=False),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=80),
    st.lists(st.binary(max_size=200), min_size=1, max_size=5),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=40),
)


@FUZZ
@given(values=st.dictionaries(st.text(max_size=200), value, min_size=1, max_size=8), asked=st.data())
def test_whatever_is_encoded_comes_back(values: dict[str, Any], asked: Any) -> None:
    payload = encode_example(values)
    lists = {name: x if isinstance(x, list) else [x] for name, x in values.items()}
    kinds = {int: "int64", float: "float32", bytes: "bytes"}
    features = {name: VarLenFeature(kinds[type(x[0])]) for name, x in lists.items()}
    names = asked.draw(st.lists(st.sampled_from(sorted(features)), unique=True, min_size=1))
    parser = ExampleParser({name: features[name] for name in names})

    for _ in range(2):  # the second time with what was learned
        assert [x.tolist() for x in parser.parse(payload)] == [lists[name] for name in names]


@FUZZ
@pytest.mark.parametrize("name", TARGETS)
@given(chosen=st.integers(0, 10_000), edits=st.lists(EDIT, max_size=4), more=st.integers(0, 10_000))
def test_damaged_inputs_of_the_fuzz_targets_are_survived(name: str, chosen: int, edits: Any, more: int) -> None:
    saved = SAVED[name]
    data = damaged(saved[chosen % len(saved)], edits)
    if more & 3 == 0:  # one behind the other
        data += saved[more % len(saved)]

    target(name)(data)


@FUZZ
@pytest.mark.parametrize("name", TARGETS)
@given(head=st.binary(max_size=4), data=st.binary(max_size=100))
def test_any_bytes_are_survived_by_the_fuzz_targets(name: str, head: bytes, data: bytes) -> None:
    target(name)(head + data)
