"""Elements that fail: what is delivered, against a plain model over random chains, and where a step gathers them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from gpupipe import UNKNOWN_CARDINALITY, DataError, Dataset, Options
from gpupipe.flow.bad.policy import ErrorPolicy
from gpupipe.flow.element import Element, Hole, Raised, Replacement, Stream
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


# ---- what `on_error` makes of bad elements, without any chain


STREAM = Stream(7, "file")


def made(kinds: str) -> list[Element]:
    """Elements: a good one for "g", a bad one for "b", an error on its way for "e"."""
    bad = {"b": Hole, "e": Raised}
    return [((i,) if kind == "g" else bad[kind](DataError(f"no {i}")), STREAM, i) for i, kind in enumerate(kinds)]


def sifted(kinds: str, on_error: str) -> tuple[list[Any], list[int]]:
    """What comes of some elements: (columns or "raised", position) of each, and the positions that were left out."""
    left: list[int] = []
    policy = ErrorPolicy(on_error, lambda hole: left.append(hole[2]), lambda: False)
    out = list(policy.sifted(iter(made(kinds))))
    assert not any(type(value) is Hole for value, _, _ in out)
    return [("raised" if type(value) is Raised else value[0], position) for value, _, position in out], left


@pytest.mark.parametrize(
    ("on_error", "expected", "left"),
    [
        ("raise", [("raised", 0), (1, 1), ("raised", 2), ("raised", 3), (4, 4)], []),
        ("skip", [(1, 1), ("raised", 3), (4, 4)], [0, 2]),
        ("replace", [(1, 0), (1, 1), (1, 2), ("raised", 3), (4, 4)], [0, 2]),
    ],
)
def test_bad_elements_are_raised_left_out_or_replaced(on_error: str, expected: list[Any], left: list[int]) -> None:
    assert sifted("bgbeg", on_error) == (expected, left)


def test_the_first_good_element_replaces_those_before_it_and_the_last_one_those_after() -> None:
    assert sifted("bbgbgb", "replace")[0] == [(2, 0), (2, 1), (2, 2), (2, 3), (4, 4), (4, 5)]


def test_a_replacement_keeps_the_identity_of_the_bad_element_and_says_so() -> None:
    policy = ErrorPolicy("replace", lambda hole: None, lambda: False)
    good, bad = made("gb")
    policy.good(good)

    ((value, stream, position),) = policy.bad(bad)

    assert (value, stream.key, position) == ((0,), 7, 1)
    assert type(stream) is Replacement
