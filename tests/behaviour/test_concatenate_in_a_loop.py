"""`ds = ds.concatenate(other)` in a loop: one node, however long the loop, and the keys that a nested one has."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from gpupipe import Dataset
from tests.behaviour.model import run


def _chained(count: int) -> Dataset:
    dataset = Dataset.range(1)
    for i in range(1, count):
        dataset = dataset.concatenate(Dataset.range(i, i + 1))
    return dataset


def test_a_loop_longer_than_pythons_recursion_limit() -> None:
    limit = sys.getrecursionlimit()
    count = 700
    try:
        sys.setrecursionlimit(600)
        assert run(_chained(count)) == list(range(count))
    finally:
        sys.setrecursionlimit(limit)


def _drawn(x: Any, rng: np.random.Generator) -> Any:
    return x, rng.random()


def test_a_part_draws_the_same_numbers_whatever_follows_it() -> None:
    def numbers(count: int) -> list[Any]:
        dataset = Dataset.range(3)
        for _ in range(count):
            dataset = dataset.concatenate(Dataset.range(3))
        return run(dataset.map(_drawn, rng=True).iterator(epoch=0))

    longest = numbers(4)
    for count in range(4):
        assert numbers(count) == longest[: 3 * (count + 1)]
    assert len({number for _, number in longest}) == 15  # equal parts, but no equal numbers


def test_on_the_right_side_too() -> None:
    dataset = Dataset.range(9, 10)
    for i in range(8, -1, -1):
        dataset = Dataset.range(i, i + 1).concatenate(dataset)

    assert run(dataset) == list(range(10))
    assert run(dataset.concatenate(dataset)) == list(range(10)) * 2
