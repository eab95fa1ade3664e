"""Damage at random: whatever the bytes, only data errors come out, and an end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpupipe.extract.examples.encode import encode_example
from gpupipe.extract.examples.example import ExampleParser
from gpupipe.extract.examples.features import VarLenFeature
from tests.fuzz.replay import CORPUS, TARGETS, inputs, target
from tests.tools.damage import broken

FUZZ = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

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


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_inputs_of_the_fuzz_targets_are_survived(name: str) -> None:
    rng = np.random.default_rng(len(name))
    saved = SAVED[name]
    for _ in range(200):
        data = broken(saved[rng.integers(len(saved))], rng)
        if rng.integers(4) == 0:  # one behind the other
            data += saved[rng.integers(len(saved))]

        target(name)(data)


@FUZZ
@pytest.mark.parametrize("name", TARGETS)
@given(head=st.binary(max_size=4), data=st.binary(max_size=100))
def test_any_bytes_are_survived_by_the_fuzz_targets(name: str, head: bytes, data: bytes) -> None:
    target(name)(head + data)
