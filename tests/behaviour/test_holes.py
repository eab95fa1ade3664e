"""Elements that fail: what is delivered, against a plain model, over random chains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings

from gpupipe import Dataset, Options
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
@settings(max_examples=70, deadline=None, database=None, derandomize=True)
@given(program=programs(failing=True, pictures=True, most=4))
def test_random_chains_of_pictures_do_too(on_error: str, program: Program) -> None:
    dataset = build(program).with_options(Options(on_error=on_error, backend="numpy", device="cpu"))  # type: ignore[arg-type]

    assert elements(dataset) == model(program, on_error)


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@given(program=programs())
def test_random_chains_without_failures_do_too(program: Program) -> None:
    assert elements(build(program)) == model(program)


def _odd(x: Any) -> Any:
    return 1 // (int(x) % 2) * x


# Odd numbers pass, even ones fail.
WRITTEN: list[tuple[str, Callable[[Dataset], Dataset], tuple[list[Any], list[Any], list[Any]]]] = [
    ("delivery", lambda d: d, (["error", 1, "error", 3, "error"], [1, 3], [1, 1, 1, 3, 3])),
    ("take counts holes", lambda d: d.take(3), (["error", 1, "error"], [1], [1, 1, 1])),
    ("skip counts holes", lambda d: d.skip(2), (["error", 3, "error"], [3], [3, 3, 3])),
    (
        "a batch is filled from what follows",
        lambda d: d.batch(2),
        (["error"] * 2 + ["error?"], [[1, 3]], [[1, 1], [1, 3], [3]]),
    ),
    (
        "a zip with a hole is a hole",
        lambda d: Dataset.zip(d, Dataset.range(5)),
        (["error", (1, 1), "error", (3, 3), "error"], [(1, 1), (3, 3)], [(1, 1), (1, 1), (1, 1), (3, 3), (3, 3)]),
    ),
]


@pytest.mark.parametrize(("make", "expected"), [pytest.param(*row[1:], id=row[0]) for row in WRITTEN])
def test_written_cases(make: Callable[[Dataset], Dataset], expected: tuple[list[Any], ...]) -> None:
    chain = make(Dataset.range(5).map(_odd))
    for on_error, wanted in zip(POLICIES, expected, strict=True):
        got = outcomes(chain.with_options(Options(on_error=on_error)))  # type: ignore[arg-type]
        if "error?" in wanted:  # three errors and the batch; errors come before the batch they were missing from
            assert sorted(map(str, got)) == sorted(["error"] * 3 + ["[1, 3]"])
        else:
            assert got == wanted


def test_only_failures_give_nothing() -> None:
    chain = Dataset.range(0, 10, 2).map(_odd)

    assert outcomes(chain) == ["error"] * 5
    for on_error in ("skip", "replace"):
        assert outcomes(chain.with_options(Options(on_error=on_error))) == []
        assert outcomes(chain.batch(2).with_options(Options(on_error=on_error))) == []
