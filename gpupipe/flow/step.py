"""step: the contract of a running step. To write a step that can be resumed, this page is enough.

A step is a frozen dataclass in a file of its own. It holds no running state; `open(at, state)` starts a pass over its
elements, or goes on after a snapshot, and returns a `Running`. A step whose elements have an index has `access(at)`,
too (`flow/access.py`).

An element is ``(columns, stream, position)``; a hole stands in the columns' place of one that failed, and counts like
any other. `Running` gives elements, says where it stands (`snapshot`), and closes what it takes them from (`close`):

- *A step that holds nothing between two elements* is a generator function over its input. What it counts is a `Count`,
  changed before the element is given; the snapshot is that of the input, with the counts::

      def open(self, at, state=None):
          inner = self.source.open(at, below(state))
          left = Count.of(state, "left", self.count)
          return Running(self._skipped(inner, left), inner, left=left)

- *A step that holds elements* derives from `Running` and takes them from a `CheckpointedInput`
  (`state/checkpoints.py`)::

      self._input = CheckpointedInput(flow.source, at, below(state))
      self.source = self._input.inner
      for element, number in self._input.recovered:       # what it held when the state was taken
          ...

  Its `snapshot` names what it holds by number, never by content: ``{"source": self._input.holding(numbers)}``. Now and
  then it calls `checkpoint`: ``if self._input.due(): self._input.checkpoint(oldest_number_it_holds)``.
- *A step that can do neither* is opened by `replayed` (`state/snapshot.py`), which gives everything once more.

A snapshot is data: None for the start, numbers, text, lists and dicts of them. Nobody is inside `next` while it is
taken. A loop ends when `at.run.stopped` is set.

A step has one owner: the thread that takes its elements closes it, too. One with threads of its own leaves their end
to `Run.on_close`, which is called from any thread, and its input to `close`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import GeneratorType, MappingProxyType
from typing import Any

from .element import Element

__all__ = ["Count", "Running", "State", "Unseen", "close"]

State = Any
"""A snapshot: None (from the start), numbers, text, lists and dicts of them, and `Deferred` leaves."""


class Count:
    """A number that a generator counts and a snapshot shows."""

    __slots__ = ("n",)

    def __init__(self, n: int) -> None:
        self.n = n

    @classmethod
    def of(cls, state: State, name: str, first: int) -> Count:
        """The number in a state; `first` where there is no state."""
        return cls(first if state is None else state[name])


class Running(Iterator[Element]):
    """A step that runs. Between two elements it can say where it stands.

    Args:
        items: the elements. `iter` gives them, so a loop passes through no method of this class for an element.
        source: the running input that they are made of.
        counts: what the step counts, by the names in its snapshot.

    A step that has a `__next__` of its own sets no `items`.
    """

    runs_ahead: bool = False
    """Whether elements come without being asked for, once it has started."""

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
        """Whether the next element, or the end, is there without waiting."""
        return True

    def own(self) -> dict[str, State]:
        """What this step counts."""
        return {name: count.n for name, count in self.counts.items()}

    def snapshot(self) -> State:
        """Where it stands. Nobody may be inside `next`.

        Raises:
            StateError: it cannot say.
        """
        return {"source": None if self.source is None else self.source.snapshot(), **self.own()}

    def close(self) -> None:
        """End the elements and close the input. Only the thread that takes the elements may close it, see `close`."""
        close(self.items)
        close(self.source)


class Unseen(Running):
    """A step that states do not know: its snapshot is that of its input, so chains with and without it share states."""

    def snapshot(self) -> State:
        """That of the input."""
        return None if self.source is None else self.source.snapshot()


def close(iterator: Iterator[Any] | None) -> None:
    """Close a running step or a generator, on the thread that owns it: who takes its elements, and nobody else.

    Others ask for it: they stop the run, and end its threads (`Run.on_close`).
    """
    if isinstance(iterator, (GeneratorType, Running)):
        # Closing nests twice as many calls as asking for an element. What is further down ends with the last reference
        # to it, and what has a thread there is told by the run, too.
        with suppress(RecursionError):
            iterator.close()
