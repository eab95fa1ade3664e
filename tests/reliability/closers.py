"""A process in which threads close iterators while others take from them, many times: ``closers.py CHAIN ROUNDS``.

CHAIN may be ``all``. It prints how many rounds of which chain there were, and ends with a traceback where an iterator
is left open, a thread stands still, or anything but the end and `ClosedError` comes out. It runs by itself, with
nothing but numpy, on any Python.
"""

from __future__ import annotations

import faulthandler
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import gpupipe as gp
from gpupipe import Dataset, Options, ops

PATIENCE = 30.0
"""Seconds until a thread counts as standing still."""


class Given:
    """A source that says whether one of its generators was closed by another thread than the one it ran in last."""

    def __init__(self) -> None:
        self.open = 0
        self.inside = 0
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
                self.inside += 1
                time.sleep(0)  # somebody else may run now, and close it
                self.inside -= 1
                yield i
        finally:
            self._opened(-1)
            time.sleep(0)


IMAGES = Dataset.from_tensor_slices(np.zeros((40, 12, 12, 3), np.uint8))
FOLDER = tempfile.TemporaryDirectory()


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
    "joined": lambda: source(7).concatenate(source(5)).repeat(20),
    "zipped": lambda: Dataset.zip((source(), source().skip(2).enumerate())),
    "flat_map": lambda: source(9).flat_map(lambda n: source(int(n))),
    "interleaved": lambda: source(9).interleave(lambda n: source(int(n)), cycle_length=3),
    "interleaved by threads": lambda: source(9).interleave(
        lambda n: source(int(n)), cycle_length=3, num_parallel_calls=2
    ),
    "interleaved in interleaved": lambda: source(9).interleave(
        lambda n: source(int(n) + 3).interleave(lambda m: source(int(m)), cycle_length=2, num_parallel_calls=2),
        cycle_length=3,
        num_parallel_calls=2,
    ),
    "mixed": lambda: Dataset.sample_from_datasets([source(), source()], [0.5, 0.5], seed=1),
    "shuffled": lambda: source().shuffle(7, seed=1).batch(3).unbatch(),
    "mapped": lambda: source().map(_slow, traced=False).filter(lambda x: bool(x % 2 == 0)).batch(2),
    "mapped by threads": lambda: source().map(_slow, traced=False, num_parallel_calls=2).batch(2),
    "scanned": lambda: source().scan(0, lambda s, x: (s + int(x), s)).take_while(lambda x: bool(x < 9000)).cache(),
    "windows": lambda: source().window(3).flat_map(lambda w: w.batch(3)),
    "prefetched": lambda: source().prefetch(2).map(_slow, traced=False).prefetch(1),
    "kept in a file": lambda: source().cache(os.path.join(tempfile.mkdtemp(dir=FOLDER.name), "cache")).batch(2),
    "in a stage": lambda: Dataset.zip((source(), IMAGES.repeat())).map(_mirrored).batch(4),
    "replaced": lambda: source().map(_failing, traced=False).with_options(Options(on_error="replace")),
}


OFTEN = {"interleaved by threads": 30}
"""How many times as many rounds there are of a chain, where a mistake showed in one of 150."""


def _failing(x: Any) -> Any:
    if x % 5 == 2:
        raise ValueError("bad")
    return _slow(x)


def take(items: Any, found: list[BaseException]) -> None:
    try:
        for _ in items:
            pass
    except gp.ClosedError:
        pass
    except BaseException as error:
        found.append(error)


def close(items: Any, found: list[BaseException], delay: float) -> None:
    try:
        time.sleep(delay)
        items.close()
    except BaseException as error:
        found.append(error)


def once(make: Callable[[], Dataset], chance: random.Random) -> None:
    """Close one iterator from two threads while two others take from it."""
    items = iter(make())
    if chance.random() < 0.5:
        next(items)
    found: list[BaseException] = []
    delays = [chance.uniform(0, 0.004) for _ in range(2)]
    threads = [threading.Thread(target=take, args=(items, found), daemon=True) for _ in range(2)]
    threads += [threading.Thread(target=close, args=(items, found, delay), daemon=True) for delay in delays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        if thread.is_alive():
            faulthandler.dump_traceback(all_threads=True)
            raise SystemExit(f"{thread.name} stands still")
    if found:
        raise found[0]
    until = time.monotonic() + PATIENCE
    while SOURCE.open and time.monotonic() < until:
        time.sleep(0.001)  # threads that were told to end
    if SOURCE.open:
        raise SystemExit(f"{SOURCE.open} generators are left open")


def main() -> None:
    """Close iterators of one chain, or of all of them."""
    faulthandler.enable()
    sys.setswitchinterval(1e-5)
    name, rounds = sys.argv[1], int(sys.argv[2])
    chance = random.Random(name)
    for one, make in CHAINS.items():
        if name in (one, "all"):
            for _ in range(rounds * OFTEN.get(one, 1)):
                once(make, chance)
            print(one, rounds * OFTEN.get(one, 1), flush=True)


if __name__ == "__main__":
    main()
