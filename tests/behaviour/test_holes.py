"""Elements that fail: what is delivered, against a plain model over random chains, and where a step gathers them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from gpupipe import UNKNOWN_CARDINALITY, DataError, Dataset, Options
from gpupipe.flow.bad.policy import ErrorPolicy
from gpupipe.flow.element import Hole, Replacement, Stream
from tests.behaviour.model import outcomes
from tests.behaviour.programs import Program, build, elements, model, programs

POLICIES = ["raise", "skip", "replace"]


@pytest.mark.parametrize("on_error", POLICIES)
@settings(max_examples=120, deadline=None, database=None, derandomize=True)
@given(program=programs(failing=True))
def test_random_chains_give_what_the_model_says(on_error: str, program: Program) -> None:
    dataset = build(program).with_options(Options(on_error=on_error))  # type: ignore[arg-type]

    assert elements(dataset) == model(program, on_error)


@pytest.mark.parametrize("on_error", POLICIES)
@settings(max_examples=110, deadline=None, database=None, derandomize=True)
@given(program=programs(failing=True, pictures=True, most=4))
def test_random_chains_of_pictures_do_too(on_error: str, program: Program) -> None:
    dataset = build(program).with_options(Options(on_error=on_error, backend="numpy", device="cpu"))  # type: ignore[arg-type]

    assert elements(dataset) == model(program, on_error)


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@given(program=programs())
def test_random_chains_without_failures_do_too_and_never_say_a_wrong_number(program: Program) -> None:
    dataset, expected = build(program), model(program)

    assert elements(dataset) == expected
    assert dataset.cardinality() in (UNKNOWN_CARDINALITY, len(expected))


def _odd(x: Any) -> Any:
    """Odd numbers pass, even ones fail."""
    return 1 // (int(x) % 2) * x


def test_only_failures_give_nothing() -> None:
    chain = Dataset.range(0, 10, 2).map(_odd)

    assert outcomes(chain) == ["error"] * 5
    for on_error in ("skip", "replace"):
        assert outcomes(chain.with_options(Options(on_error=on_error))) == []
        assert outcomes(chain.batch(2).with_options(Options(on_error=on_error))) == []


def test_a_replacement_keeps_the_identity_of_the_bad_element_and_says_so() -> None:
    policy = ErrorPolicy("replace", lambda hole: None, lambda: False)
    policy.good(((0,), Stream(7, "file"), 0))

    ((value, stream, position),) = policy.bad((Hole(DataError("no 1")), Stream(7, "file"), 1))

    assert (value, stream.key, position) == ((0,), 7, 1)
    assert type(stream) is Replacement
