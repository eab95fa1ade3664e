"""What a chain gives as plain Python values, so that expectations read like the documentation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.transform.array import on_gpu, to_host


def plain(value: Any) -> Any:
    """A value without NumPy: arrays as lists, wherever they are, scalars as Python numbers."""
    if isinstance(value, tuple):
        parts = [plain(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if on_gpu(value):
        return to_host(value).tolist()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value


def run(dataset: Iterable[Any]) -> list[Any]:
    """Everything a dataset or iterator gives, as plain values."""
    return [plain(element) for element in dataset]


def outcomes(dataset: Iterable[Any], most: int = 10_000) -> list[Any]:
    """What each `next` does: a plain value, or the string "error" where it raised a data error."""
    items = iter(dataset)
    seen: list[Any] = []
    for _ in range(most):
        try:
            seen.append(plain(next(items)))
        except StopIteration:
            return seen
        except gp.DataError:
            seen.append("error")
    raise AssertionError(f"no end after {most} elements")


def interleaved(inputs: list[list[Any]], cycle: int, block: int) -> list[Any]:
    """The order of tf.data: an exhausted slot is refilled, in place, when the cycle returns to it."""
    slots: list[Iterator[Any] | None] = [None] * cycle
    waiting, out, at = iter(inputs), list[Any](), 0
    while True:
        if slots[at] is None:
            slots[at] = next(map(iter, waiting), None)
            if not any(slots):
                return out
        taken = list(islice(slots[at] or (), block))
        out += taken
        if len(taken) < block:
            slots[at] = None
        at = (at + 1) % cycle


def fails_where(bad: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """A function of Python that gives back what it gets, and fails for some of it."""

    def function(x: Any) -> Any:
        if bad(x):
            raise ValueError("bad")
        return x

    return function


def take_until_closed(items: Iterator[Any], taken: list[Any]) -> None:
    """What a thread takes from an iterator that another one closes; it is told so."""
    with pytest.raises(gp.ClosedError, match="got one that was closed"):
        taken.extend(items)
