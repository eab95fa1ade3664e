"""Functions for the tests of worker processes: at the top of a module, where a spawned process finds them."""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

import numpy as np

from gpupipe import Ragged, ops
from gpupipe.errors import ParseError


class Pair(NamedTuple):
    """An element class that both sides import by its name."""

    number: Any
    texts: Any


def shapes(x: Any) -> Any:
    """Every kind of column, of a size that grows with x."""
    n = int(x)
    return {
        "image": np.full((n, 2, 3), n, np.uint8),
        "scalar": np.float32(n / 2),
        "pair": Pair(n, np.array([b"a" * n, b"\0"], object)),
        "empty": np.zeros((0, 3), np.float64),
        "text": b"x\0" * n,
        "flag": n % 2 == 0,
        "none": None,
        "ragged": Ragged(Ragged(np.arange(n), [0, n]), [0, 0, 1]),
        b"wide": np.full(n, n / 3, np.longdouble),
        ("a", (1, b"\xff")): n,
    }


def of_a_local_class(x: Any) -> Any:
    """An element of a class that nobody finds by its name."""

    class Local(NamedTuple):
        x: Any

    return Local(x)


def echo(value: Any) -> Any:
    """What came."""
    return value


def changed(value: Any) -> Any:
    """What came, written to if that is allowed."""
    value += 1
    return value


def process_of(x: Any, nap: float = 0.02) -> Any:
    """The number of the process, slowly, so that every worker gets some."""
    time.sleep(nap)
    return x, os.getpid()


def large(x: Any) -> Any:
    """More bytes for every element."""
    return np.full(40_000 * (int(x) + 1), int(x), np.uint8)


def fragile(x: Any) -> Any:
    """Fails in several ways."""
    if x == 1:
        raise ValueError("one is too few")
    if x == 2:
        raise ParseError("two is no Example", stage="parse")
    if x == 3:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "three")
    if x == 4:
        return None
    if x == 5:
        return {1, 2}
    return int(x)


def mortal(x: Any) -> Any:
    """Ends its process at 3, and is killed at 6."""
    if x == 3:
        os._exit(7)
    if x == 6:
        os.kill(os.getpid(), 9)
    return int(x)


def slow_first(x: Any) -> Any:
    """Element 0 takes long."""
    if x == 0:
        time.sleep(0.3)
    return int(x)


def odd_one(x: Any) -> Any:
    """Element 1 has another structure, element 4 another dtype."""
    if x == 1:
        return (x, x)
    return float(x) if x == 4 else int(x)


def noise(x: Any, rng: np.random.Generator) -> Any:
    """Numbers of the generator that was handed in."""
    return x, rng.random(3)


def flipped(x: Any) -> Any:
    """An eager random op: it draws with the element's key."""
    return ops.random_crop(np.arange(300, dtype=np.uint8).reshape(10, 10, 3), (4, 4)), x


def decoded(data: Any) -> Any:
    """An eager decoder: it goes by Options.max_pixels."""
    return ops.decode_png(data, channels=3)


def for_ever(x: Any) -> Any:
    """Never comes back."""
    while True:
        time.sleep(60)


class Speechless(Exception):
    """An exception whose text cannot be made."""

    def __str__(self) -> str:
        return str(1 // 0)


def raises_at_one(x: Any, error: BaseException) -> Any:
    """Raises an exception at 1."""
    if x == 1:
        raise error
    return int(x)


def stuck_at_one(x: Any) -> Any:
    """Never comes back from element 1 while there is a file whose name is in the environment."""
    while int(x) == 1 and os.path.exists(os.environ.get("GPUPIPE_TEST_STUCK", "")):
        time.sleep(0.01)
    return int(x), os.getpid()
