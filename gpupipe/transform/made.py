"""made: results of rows whose batch was not delivered, since another row of it, or of the batch before, is bad.

The rows come again at once, in other batches: a bad image costs its own decoding, not that of the batches in flight.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from .program import Feed

__all__ = ["Made"]

_BATCHES = 4
"""Batches that may be delivered before what is left is dropped: the rows come in the first of them."""

Key = tuple[Any, ...]


class Made:
    """Results by what a row was computed from: objects by identity, numbers by value."""

    def __init__(self) -> None:
        self._rows: dict[Key, tuple[list[Any], list[Any]]] = {}
        self._left = 0

    def __bool__(self) -> bool:
        return bool(self._rows)

    def keep(self, feed: Feed, results: Sequence[Any], bad: Container[int]) -> None:
        """Keep the results of the good rows of a batch that nobody gets."""
        self._left = _BATCHES
        for row in range(feed.size):
            made = [result[row] for result in results]
            if row not in bad and not any(result is None for result in made):
                inputs = [column[row] for column in feed.values]
                self._rows[_key(feed, row)] = inputs, made  # inputs are kept, so that no other object gets their id

    def take(self, feed: Feed, row: int) -> list[Any] | None:
        """The results of a row, once; None if they were not kept."""
        found = self._rows.pop(_key(feed, row), None)
        return None if found is None else found[1]

    def delivered(self) -> None:
        """Note that a batch was delivered."""
        self._left -= 1
        if self._left <= 0:
            self._rows.clear()


def _key(feed: Feed, row: int) -> Key:
    return tuple(column[row].tobytes() if isinstance(column, np.ndarray) else id(column[row]) for column in feed.values)
