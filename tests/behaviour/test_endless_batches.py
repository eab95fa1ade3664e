"""Shards and slices of the batches of a dataset that never ends: those that the loop over all batches gives."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset

CHAINS: dict[str, Callable[[], Dataset]] = {
    "repeated": lambda: Dataset.range(7).repeat(),
    "shuffled again and again": lambda: Dataset.range(7).shuffle(gp.ALL, seed=1).repeat(),
    "mapped": lambda: Dataset.range(7).map(lambda x: x * 2).repeat(),
    "cut after all": lambda: Dataset.range(7).repeat().take(60),
    "skipped": lambda: Dataset.range(7).repeat().skip(3),
}

BATCHES: dict[str, Callable[[Dataset], Dataset]] = {
    "batch": lambda ds: ds.batch(4),
    "whole batches": lambda ds: ds.batch(4, drop_remainder=True),
    "padded": lambda ds: ds.padded_batch(4),
    "skip": lambda ds: ds.batch(4).skip(2),
}

CHOICES: dict[str, Callable[[Dataset, int], Dataset]] = {
    "shard": lambda ds, i: ds.shard(3, i),
    "shard, even": lambda ds, i: ds.shard(3, i, even="drop"),
    "slice": lambda ds, i: ds[i::3],
}


def _taken(items: Any, count: int) -> list[list[int]]:
    return [np.asarray(x).tolist() for x in islice(items, count)]


@pytest.mark.parametrize(
    ("name", "batches", "choice"),
    [(name, batches, choice) for name in CHAINS for batches in BATCHES for choice in CHOICES][
        ::5
    ],  # every value, and most pairs
)
def test_a_part_of_the_batches_is_that_of_the_loop_over_all(name: str, batches: str, choice: str) -> None:
    ds = BATCHES[batches](CHAINS[name]())
    whole = _taken(ds.iterator(epoch=1), 12)
    for i in range(3):
        part = CHOICES[choice](ds, i)
        with part.iterator(epoch=1) as items:
            assert _taken(items, 2) == whole[i::3][:2]
            state = items.state_dict()
            rest = _taken(items, 2)
            assert rest == whole[i::3][2:4]
        with part.iterator(epoch=1) as other:
            other.load_state_dict(state)
            assert _taken(other, 2) == rest
