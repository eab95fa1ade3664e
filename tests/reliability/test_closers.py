"""Threads close iterators while others take from them, many times, with threads that change as often as they can."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.flow.run import Run
from tests.reliability.resume import PATIENCE


@pytest.fixture(autouse=True)
def _threads_change_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Given:
    """A source that says how many of its generators are open."""

    def __init__(self) -> None:
        self.open = 0
        self._lock = threading.Lock()  # without the GIL no count is exact

    def _opened(self, more: int) -> None:
        with self._lock:
            self.open += more

    def part(self, n: int) -> Iterator[int]:
        """Hand on another iterator: closing it closes that one, too."""
        yield from self.numbers(n)

    def numbers(self, n: int) -> Iterator[int]:
        self._opened(1)
        try:
            for i in range(n):
                time.sleep(0)  # somebody else may run now, and close it
                yield i
        finally:
            self._opened(-1)
            time.sleep(0)


IMAGES = Dataset.from_tensor_slices(np.zeros((40, 12, 12, 3), np.uint8))


def _mirrored(number: Any, image: Any) -> Any:
    return number, ops.random_flip_left_right(image)


def _slow(x: Any) -> Any:
    time.sleep(0)
    return int(x)


SOURCE = Given()


def source(n: int = 200) -> Dataset:
    return Dataset.from_generator(lambda: SOURCE.part(n))


CHAINS: dict[str, Callable[[], Dataset]] = {
    "generator": source,
    "zipped": lambda: Dataset.zip((source(), source().skip(2).enumerate())),
    "interleaved": lambda: source(9).interleave(lambda n: source(int(n)), cycle_length=3),
    "interleaved by threads": lambda: source(9).interleave(
        lambda n: source(int(n)), cycle_length=3, num_parallel_calls=2
    ),
    "interleaved in interleaved": lambda: source(9).interleave(
        lambda n: source(int(n) + 3).interleave(lambda m: source(int(m)), cycle_length=2, num_parallel_calls=2),
        cycle_length=3,
        num_parallel_calls=2,
    ),
    "shuffled": lambda: source().shuffle(7, seed=1).batch(3).unbatch(),
    "mapped": lambda: source().map(_slow, traced=False).filter(lambda x: bool(x % 2 == 0)).batch(2),
    "mapped by threads": lambda: source().map(_slow, traced=False, num_parallel_calls=2).batch(2),
    "scanned": lambda: source().scan(0, lambda s, x: (s + int(x), s)).take_while(lambda x: bool(x < 9000)).cache(),
    "windows": lambda: source().window(3).flat_map(lambda w: w.batch(3)),
    "prefetched": lambda: source().prefetch(2).map(_slow, traced=False).prefetch(1),
    "in a stage": lambda: Dataset.zip((source(), IMAGES.repeat())).map(_mirrored).batch(4),
    "replaced": lambda: source().map(_failing, traced=False).with_options(Options(on_error="replace")),
}


OFTEN = {"interleaved by threads": 30}
"""How many times as many rounds there are of a chain, where a mistake showed in one of 150."""


def _failing(x: Any) -> Any:
    if x % 5 == 2:
        raise ValueError("bad")
    return _slow(x)


def take(items: Any) -> None:
    with contextlib.suppress(gp.ClosedError):
        deque(items, maxlen=0)


def close(items: Any, delay: float) -> None:
    time.sleep(delay)
    items.close()


@pytest.mark.parametrize("name", CHAINS)
def test_threads_may_close_an_iterator_while_others_take_from_it(name: str) -> None:
    """No thread stands still, no generator is left open, and nothing but the end and `ClosedError` comes out."""
    chance = random.Random(name)
    for _ in range(10 * OFTEN.get(name, 1)):
        items = iter(CHAINS[name]())
        if chance.random() < 0.5:
            next(items)
        with ThreadPoolExecutor(4) as pool:
            jobs = [pool.submit(take, items) for _ in range(2)]
            jobs += [pool.submit(close, items, chance.uniform(0, 0.004)) for _ in range(2)]
            for job in jobs:
                job.result(PATIENCE)
        until = time.monotonic() + PATIENCE
        while SOURCE.open and time.monotonic() < until:
            time.sleep(0.001)  # threads that were told to end
        assert not SOURCE.open


def test_what_is_made_while_the_run_is_closed_is_closed_too() -> None:
    """A step in another thread makes new threads, under the closer that is just being called for the old ones."""
    run, closed = Run(Options().resolve()), list[bool]()

    def closer(wait: bool) -> None:
        closed.append(wait)
        if len(closed) == 1:
            run.on_close(closer)

    run.on_close(closer)
    run.close()
    late = list[bool]()
    run.on_close(late.append)

    assert closed == [True, False]
    assert late == [False]
