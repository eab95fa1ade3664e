"""sample: some elements of a sequence whose length is not known, evenly spread over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

__all__ = ["Sample"]

_T = TypeVar("_T")


class Sample(Generic[_T]):
    """Keeps every element at first; each time there are too many, every second one and half as many from there on.

    Args:
        most: how many are kept, at most; at the end of a long sequence at least half as many are.
        make: what is kept of an element; called for those alone that are taken.
    """

    def __init__(self, most: int, make: Callable[[Any], _T]) -> None:
        self._most = most
        self._make = make
        self._step = 1
        self._next = self._seen = 0
        self.kept: list[_T] = []

    def add(self, elements: Sequence[Any]) -> None:
        """Take from the next elements of the sequence."""
        before, self._seen = self._seen, self._seen + len(elements)
        while self._next < self._seen:
            self.kept.append(self._make(elements[self._next - before]))
            if len(self.kept) > self._most:
                del self.kept[1::2]
                self._step *= 2
                self._next = self._step * len(self.kept)
            else:
                self._next += self._step
