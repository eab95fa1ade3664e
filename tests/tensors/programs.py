"""What the programs of this folder, each in a process of its own, train on."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

import gpupipe as gp
from gpupipe.structure import flatten


def chain() -> gp.Dataset:
    """11 batches of 4: float32[4, 2] and the numbers of the elements."""
    inputs = np.random.default_rng(0).random((44, 2), np.float32)
    return gp.Dataset.from_tensor_slices((inputs, np.arange(44))).shuffle(gp.ALL, seed=1).batch(4).prefetch(2)


def converted(loader: Any) -> list[Any]:
    """The arrays that a loader converts from now on, kept, so that no place in memory is used twice."""
    arrays: list[Any] = []
    convert = loader._convert

    def noting(element: Any) -> Any:  # one that was looked at ahead may come a second time, in tensors
        arrays.extend(leaf for leaf in flatten(element)[0] if isinstance(leaf, np.ndarray))
        return convert(element)

    loader._convert = noting
    return arrays


def tell(rank: int, **found: Any) -> None:
    """Print what a rank found as one line, in one write: other ranks print to the same pipe."""
    print(json.dumps({"rank": rank, **found}) + "\n", end="", flush=True)


def drawn(x: Any, rng: np.random.Generator) -> Any:
    return np.array([int(x), rng.random()], np.float32)


def rows(count: int = 12) -> gp.Dataset:
    """Elements in an order that is drawn: float32[2], a number and what is drawn for it."""
    spec = gp.TensorSpec((2,), "float32")
    return gp.Dataset.range(count).shuffle(gp.ALL, seed=1).map(drawn, rng=True, spec=spec)


def drawing() -> gp.Dataset:
    """6 batches of 2 of `rows`."""
    return rows().batch(2)


def epochs(*numbers: int) -> list[list[Any]]:
    """The batches of `drawing` in epochs."""
    return [[batch.tolist() for batch in drawing().iterator(epoch=number)] for number in numbers]
