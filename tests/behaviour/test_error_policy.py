"""What `on_error` makes of bad elements where a step gathers elements (`flow/bad/policy.py`), without any chain."""

from __future__ import annotations

from typing import Any

import pytest

from gpupipe import DataError
from gpupipe.flow.bad.policy import ErrorPolicy
from gpupipe.flow.element import Element, Hole, Raised, Replacement, Stream

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
