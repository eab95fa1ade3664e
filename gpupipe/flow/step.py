"""step: the iterators of steps that pass elements on one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .element import Element, close
from .state.snapshot import State, number, snapshot

__all__ = ["Cell", "Wrapped"]


class Wrapped:
    """An iterator over another one, that closes it too.

    `iter` gives the items themselves: a loop over them does not pass through here for every element. Between two items
    nothing is held, so its state is that of the input, and what the step counts.

    Args:
        items: the elements.
        inner: what they are made of.
        own: what the step counts, for its state.
    """

    __slots__ = ("_inner", "_items", "_own")

    def __init__(self, items: Iterator[Element], inner: Any, own: Callable[[], dict[str, State]] | None = None) -> None:
        self._items = items
        self._inner = inner
        self._own = own

    def __iter__(self) -> Iterator[Element]:
        return self._items

    def __next__(self) -> Element:
        return next(self._items)

    def snapshot(self) -> State:
        """The state of the input, and what the step counts."""
        source = None if self._inner is None else snapshot(self._inner)
        return {"source": source, **(self._own() if self._own is not None else {})}

    def close(self) -> None:
        close(self._items)
        close(self._inner)


class Cell:
    """A number that a generator counts and a state shows."""

    __slots__ = ("n",)

    def __init__(self, n: int) -> None:
        self.n = n

    @classmethod
    def of(cls, state: State, name: str, first: int) -> Cell:
        """The number in a state; `first` where there is none."""
        return cls(first if state is None else number(state, name))
