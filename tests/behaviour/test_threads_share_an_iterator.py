"""Several threads take from one iterator: each element goes to exactly one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, Options, TensorSpec, ops
from tests.behaviour.model import plain

COUNT = 600


def _generator() -> Any:
    yield from range(COUNT)


def _images() -> Dataset:
    images = Dataset.range(COUNT).map(lambda x: np.full((2, 2, 1), x, np.int32), spec=TensorSpec((2, 2, 1), "int32"))
    images = images.map(lambda x: ops.flip_left_right(x)).batch(3).unbatch()
    return images.map(lambda x: np.int64(x[0, 0, 0])).with_options(Options(device="cpu", backend="numpy"))


CHAINS: dict[str, Callable[[], Dataset]] = {
    "plain": lambda: Dataset.range(COUNT),
    "parallel map": lambda: Dataset.range(COUNT).map(lambda x: int(x), traced=False, num_parallel_calls=2),
    "shuffle": lambda: Dataset.range(COUNT).shuffle(10),
    "prefetch": lambda: Dataset.range(COUNT).map(lambda x: int(x)).prefetch(3),
    "generator": lambda: Dataset.from_generator(_generator),
    "interleave": lambda: Dataset.range(COUNT // 10).interleave(lambda i: Dataset.range(i * 10, i * 10 + 10)),
    "images": _images,
}


def _taken(items: Any, count: int = 4) -> list[list[Any]]:
    """What each thread got; an exception of any of them is raised."""
    got: list[list[Any]] = [[] for _ in range(count)]
    start = threading.Barrier(count)

    def take(mine: list[Any]) -> None:
        start.wait()
        mine.extend(plain(x) for x in items)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(take, got))
    return got


@pytest.mark.parametrize("make", CHAINS.values(), ids=CHAINS.keys())
def test_every_element_is_taken_once(make: Callable[[], Dataset]) -> None:
    got = _taken(iter(make()))

    assert sorted(x for mine in got for x in mine) == list(range(COUNT))


def test_stand_ins_are_shared_out_too() -> None:
    def fail(x: Any) -> Any:
        if x < 50 or x % 7 == 0:
            raise ValueError
        return x

    chain = Dataset.range(COUNT).map(fail, traced=False).with_options(Options(on_error="replace"))

    got = _taken(iter(chain))

    assert sorted(x for mine in got for x in mine) == sorted(plain(x) for x in chain)
