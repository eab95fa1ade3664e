"""repeat: a pass that happens to be empty ends nothing; one that stays empty says so."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import gpupipe as gp
from gpupipe import Dataset
from tests.behaviour.model import run

FORMS: dict[str, Callable[[Dataset], Dataset]] = {
    "repeat": lambda ds: ds,
    "shuffle and repeat": lambda ds: ds.shuffle(9),
}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Callable[[Dataset], Dataset]:
    """What stands in front of the repeat."""
    return FORMS[request.param]


def passes_of(sizes: Sequence[int], rest: int = 0) -> tuple[Dataset, list[int]]:
    """A dataset whose passes have so many elements, later ones `rest`; and the sizes of those that were begun."""
    begun: list[int] = []

    def numbers() -> Any:
        begun.append(sizes[len(begun)] if len(begun) < len(sizes) else rest)
        return range(100 * len(begun), 100 * len(begun) + begun[-1])

    return Dataset.from_generator(numbers, output_signature=gp.TensorSpec((), "int64")), begun


@pytest.mark.parametrize(
    "sizes", [[0, 2], [0, 0, 3], [2, 0, 2], [1, 0, 0, 0, 1], [0] * 40 + [2], [0, 0], [2, 0]], ids=str
)
def test_a_counted_repeat_goes_on_behind_an_empty_pass(sizes: list[int], form: Callable[[Dataset], Dataset]) -> None:
    source, begun = passes_of(sizes)

    got = run(form(source).repeat(len(sizes)))

    assert [x // 100 for x in got] == [i + 1 for i, size in enumerate(sizes) for _ in range(size)]
    assert sorted(got) == [100 * (i + 1) + j for i, size in enumerate(sizes) for j in range(size)]
    assert begun == sizes


@pytest.mark.parametrize("sizes", [[0, 2], [2, 0, 2], [1, *[0] * 9, 1, *[0] * 9, 1]], ids=str)
def test_an_endless_repeat_goes_on_behind_some_empty_passes(
    sizes: list[int], form: Callable[[Dataset], Dataset], caplog: pytest.LogCaptureFixture
) -> None:
    source, _ = passes_of(sizes)

    assert sorted(run(form(source).repeat().take(sum(sizes)))) == [
        100 * (i + 1) + j for i, size in enumerate(sizes) for j in range(size)
    ]
    assert caplog.messages == []


def test_an_endless_repeat_of_what_stays_empty_ends_and_says_so(
    form: Callable[[Dataset], Dataset], caplog: pytest.LogCaptureFixture
) -> None:
    source, begun = passes_of([0, 1, 0, 2])

    with caplog.at_level(logging.WARNING, "gpupipe"):
        got = run(form(source).repeat())

    assert len(got) == 3
    assert begun == [0, 1, 0, 2, *[0] * 10]
    (said,) = caplog.messages
    assert "repeat() at " in said or "shuffle_and_repeat(9, " in said
    assert f"{__file__}:" in said
    assert "ends after 10 passes in a row without an element" in said


def test_a_state_behind_an_empty_pass_goes_on_in_its_pass(form: Callable[[Dataset], Dataset]) -> None:
    def chain() -> Dataset:
        # Which elements are left depends on the pass: here some passes of the repeat are empty.
        return form(Dataset.range(3).map(lambda x, rng: rng.random() + x, rng=True).filter(lambda x: x < 0.2)).repeat(
            30
        )

    whole = run(chain().iterator(epoch=0))
    assert 0 < len(whole) < 25

    for n in range(len(whole) + 1):
        items = chain().iterator(epoch=0)
        head = [float(next(items)) for _ in range(n)]
        again = chain().iterator()
        again.load_state_dict(items.state_dict())
        assert head + run(again) == whole
