"""prefetch(n): how much is made ahead of whoever takes, counted at the source."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.flow.stage.runner import IN_FLIGHT, WAITING

SPEC = gp.TensorSpec((4, 4, 3), "uint8")


class Source:
    """A generator that counts what was taken from it."""

    taken = 0

    def __call__(self) -> Iterator[int]:
        for i in range(400):
            self.taken += 1
            yield i

    @property
    def dataset(self) -> Dataset:
        return Dataset.from_generator(self, output_signature=gp.TensorSpec((), "int64"))


def _taken(source: Source, chain: Dataset, given: int) -> int:
    """How many elements were taken when `given` were delivered and everything that may run ahead has."""
    with iter(chain) as items:
        for _ in range(given):
            next(items)
        last = -1
        while last != source.taken:
            last = source.taken
            time.sleep(0.1)
        return last


HOST: dict[str, tuple[int, Callable[[Dataset, int], Dataset]]] = {
    "alone": (1, lambda d, n: d.prefetch(n)),
    "behind a Python map": (1, lambda d, n: d.map(lambda x: int(x)).prefetch(n)),
    "in the middle": (1, lambda d, n: d.prefetch(n).map(lambda x: int(x))),
    "behind a batch": (3, lambda d, n: d.batch(3).prefetch(n)),
    "in a zip": (1, lambda d, n: Dataset.zip(d.prefetch(n), Dataset.range(400))),
}


@pytest.mark.parametrize("name", HOST)
@pytest.mark.parametrize("size", [1, 5])
def test_at_most_so_many_elements_are_made_ahead(name: str, size: int) -> None:
    rows, step = HOST[name]
    source = Source()

    assert _taken(source, step(source.dataset, size), given=2) == rows * (2 + size)


@pytest.mark.parametrize("rules", [(), ("drop_no_ops",)], ids=["dropped", "kept"])
def test_prefetch_of_nothing_makes_nothing_ahead(rules: tuple[str, ...]) -> None:
    source = Source()
    chain = source.dataset.prefetch(0).map(lambda x: int(x)).with_options(Options(disabled_rules=rules))

    assert _taken(source, chain, given=2) == 2


@pytest.mark.parametrize("backend", ["numpy", "dali"])
@pytest.mark.parametrize("size", [1, 6])
def test_of_image_batches_so_many_are_finished_and_a_few_in_work(backend: Any, size: int) -> None:
    source = Source()
    images = source.dataset.map(lambda x: np.full((4, 4, 3), x % 256, np.uint8), spec=SPEC)
    chain = images.map(lambda x: ops.resize(x, (2, 2))).batch(2).prefetch(size)

    ahead = _taken(source, chain.with_options(Options(backend=backend)), given=2) / 2 - 2

    assert size <= ahead <= size + IN_FLIGHT - 1 + WAITING
