"""The contract of a running step (`flow/step.py`), without any chain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gpupipe as gp
from gpupipe.flow.element import Element, Stream
from gpupipe.flow.step import Count, Running, close

FLOW = sorted((Path(gp.__file__).parent / "flow").rglob("*.py"))


def elements(n: int) -> Iterator[Element]:
    stream = Stream(0, "")
    for i in range(n):
        yield (i,), stream, i


def numbers(items: Iterator[Element]) -> list[Any]:
    return [element[0][0] for element in items]


class Doubled(Running):
    """A step with a `next` of its own."""

    def __init__(self, source: Running) -> None:
        self.source = source

    def __next__(self) -> Element:
        value, stream, position = next(iter(self.source or ()))
        return (value[0] * 2,), stream, position


def test_a_loop_over_a_step_passes_through_none_of_its_methods() -> None:
    items = elements(3)

    assert iter(Running(items)) is items


def test_a_step_with_a_next_of_its_own_is_what_a_loop_takes_from() -> None:
    step = Doubled(Running(elements(3)))

    assert iter(step) is step
    assert numbers(step) == [0, 2, 4]


def test_a_snapshot_has_that_of_the_input_and_the_counts() -> None:
    below, above = Count(3), Count.of({"left": 7}, "left", 0)
    step = Running(elements(1), Doubled(Running(elements(1), n=below)), left=above)
    below.n += 1

    assert step.snapshot() == {"source": {"source": {"source": None, "n": 4}}, "left": 7}
    assert Count.of(None, "left", 5).n == 5


def test_closing_a_step_closes_its_elements_and_its_input() -> None:
    items, inputs = elements(3), elements(3)
    step = Running(items, Doubled(Running(inputs)))
    next(step)

    close(step)

    assert numbers(items) == numbers(inputs) == []


def test_a_step_is_ready_and_runs_nothing_ahead_unless_it_says_so() -> None:
    step = Doubled(Running(elements(1)))

    assert step.ready()
    assert not step.runs_ahead


@pytest.mark.parametrize("path", FLOW, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_a_step_can_do_is_never_looked_up_by_name(path: Path) -> None:
    assert re.findall(r"getattr\(.*(?:snapshot|close|ready|ahead)", path.read_text(encoding="utf-8")) == []
