"""step: the contract of a running step. To write a step that can be resumed, this page is enough.

A step is a frozen dataclass in a file of its own. It holds no running state; `open(at, state)` starts a pass over its
elements, or resumes one from a snapshot, and returns a `Running`. A step whose elements have an index also has
`access(at)` (`flow/access.py`).

An element is ``(columns, stream, position)``; one that failed has a `Hole` instead of columns, and counts like any
other. A `Running` yields elements, reports its position (`snapshot`) and closes its input (`close`):

- *A step that holds nothing between two elements* is a generator function over its input. What it counts is a `Count`,
  changed before the element is yielded; its snapshot is that of the input plus the counts::

      def open(self, at, state=None):
          inner = self.source.open(at, part(state))
          left = Count.of(state, "left", self.count)
          return Running(self._skipped(inner, left), inner, left=left)

- *A step that holds elements* derives from `Running` and takes them from a `CheckpointedInput`
  (`state/checkpoints.py`)::

      self._input = CheckpointedInput(flow.source, at, part(state))
      self.source = self._input.inner
      for element, number in self._input.recovered:       # held when the state was taken
          ...

  Its `snapshot` names the elements it holds by number, never by content:
  ``{"source": self._input.holding(numbers)}``. Now and then it takes a checkpoint:
  ``if self._input.due(): self._input.checkpoint(oldest_number_it_holds)``.
- *A step that can do neither* is opened by `replayed` (`state/snapshot.py`), which runs it again from the start.

A snapshot is data: None for the start, numbers, text, lists and dicts of them. No thread is inside `next` while it is
taken. A loop ends when `at.run.stopped` is set; a step may leave elements out from then on, or give errors for them, so
one that keeps elements looks at it before it keeps them.

A step has one owner: the thread that takes its elements also closes it. A step with threads of its own ends them in
`Run.on_close`, which may be called from any thread, and its input in `close`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import GeneratorType, MappingProxyType
from typing import Any

from .element import Element

__all__ = ["Count", "Running", "State", "Unseen", "close"]

State = Any
"""A snapshot: None (the start), numbers, text, lists and dicts of them, and `Deferred` leaves."""


class Count:
    """A number that a generator updates and a snapshot reports."""

    __slots__ = ("n",)

    def __init__(self, n: int) -> None:
        self.n = n

    @classmethod
    def of(cls, state: State, name: str, first: int) -> Count:
        """Read the number from a state; `first` if there is no state."""
        return cls(first if state is None else state[name])


class Running(Iterator[Element]):
    """A running step: an iterator of elements that can take a snapshot between two of them.

    Args:
        items: the elements. `iter` returns them, so a loop calls no method of this class for an element.
        source: the running input.
        counts: what the step counts, by the names in its snapshot.

    A step with a `__next__` of its own sets no `items`.
    """

    runs_ahead: bool = False
    """Whether elements are computed before they are asked for, once the step has started."""

    items: Any = None
    source: Running | None = None
    counts: Mapping[str, Count] = MappingProxyType({})

    def __init__(self, items: Iterator[Element], source: Running | None = None, **counts: Count) -> None:
        self.items = items
        self.source = source
        self.counts = counts

    def __iter__(self) -> Iterator[Element]:
        return self if self.items is None else self.items

    def __next__(self) -> Element:
        element: Element = next(self.items)
        return element

    def ready(self) -> bool:
        """Whether the next element, or the end, can be had without waiting."""
        return True

    def own(self) -> dict[str, State]:
        """The part of the snapshot that is this step's, without the input."""
        return {name: count.n for name, count in self.counts.items()}

    def snapshot(self) -> State:
        """The position of this step and its input. No thread may be inside `next`.

        Raises:
            StateError: the step has no state here.
        """
        return {"source": None if self.source is None else self.source.snapshot(), **self.own()}

    def lose(self) -> None:
        """Behave as if the rest of the file were lost behind the last element, in snapshots as well."""

    def close(self) -> None:
        """End the elements and close the input. Only the thread that takes the elements may call it, see `close`."""
        close(self.items)
        close(self.source)


class Unseen(Running):
    """A step that does not appear in states: chains with and without it share states."""

    def snapshot(self) -> State:
        return None if self.source is None else self.source.snapshot()


def close(iterator: Iterator[Any] | None) -> None:
    """Close a running step or a generator, on the thread that takes its elements and on no other.

    Other threads stop the run instead, which ends its threads (`Run.on_close`).
    """
    if isinstance(iterator, (GeneratorType, Running)):
        # Closing nests twice as many calls as asking for an element. Steps that are nested too deep end with the last
        # reference to them; those with threads are also told by the run.
        with suppress(RecursionError):
            iterator.close()
