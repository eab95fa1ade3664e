"""batcher: elements into groups that one run of a graph computes. Here holes leave, by `on_error`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ..element import BatchStream, Element, Hole, Raised
from ..run import Run

__all__ = ["Batcher", "Group", "MicroBatcher"]


@dataclass(slots=True)
class Group:
    """What one run of the graph gets.

    Attributes:
        rows: good elements.
        order: what to deliver: an index into `rows`, or a hole. None delivers all rows as one batch.
        whole: the element that the rows were taken from, if they were.
        taken: what a batch was made of, as it came: an element for each row, and holes that were raised in between.
    """

    rows: list[Element]
    order: list[int | Element] | None = None
    whole: Element | None = None
    taken: Sequence[Element] = ()


class Batcher:
    """Consecutive elements into groups of `size`.

    Args:
        source: the elements.
        size: of a group.
        drop: leave out a last group that is short.
        run: its `on_error` says what holes do; it counts those that leave here.
        aligned: something is zipped to these batches: a batch with a bad row is a hole in its place, because filling it
            up from behind would shift every row after it against the other side.
        ignores: holes are left out as `ignore_errors` does, whatever `on_error` says; True logs each of them. None
            where no `ignore_errors` stands below.

    Attributes:
        reforms: whether what follows a bad row is formed anew.
    """

    def __init__(
        self,
        source: Iterator[Element],
        size: int,
        drop: bool,
        run: Run,
        aligned: bool = False,
        ignores: bool | None = None,
    ) -> None:
        self._ignores = ignores
        self._aligned = aligned and ignores is None and run.settings.on_error != "replace"
        self.reforms = not self._aligned
        self._source = iter(source)
        self._size = size
        self._drop = drop
        self._run = run
        self._policy = run.policy()
        self._pending: deque[Element] = deque()
        self._rows: list[Element] = []
        self._taken: list[Element] | None = None  # what they were made of, where that is more than the rows: holes too

    def next(self) -> Group | Element | None:
        """The next group; an element that is a raised hole; None at the end."""
        if self._aligned:
            return self._next_aligned()
        stopped = self._run.stopped.is_set
        while len(self._rows) < self._size:
            if stopped():
                return None
            if self._pending:
                element: Element | None = self._pending.popleft()
            else:
                element = self._good_ones(stopped) if self._taken is None else next(self._source, None)
            if element is None:
                if len(self._rows) == self._size or stopped():
                    continue
                break
            value = element[0]
            if type(value) is tuple:
                self._add(element)
                continue
            if self._taken is None:
                self._taken = self._rows.copy()
            if self._ignores is not None:
                if not value.error.lost:
                    self._run.leave_out(element, "left out", self._ignores)
                    self._keep(element)
                    continue
                value.ignored = True
            if self._rows:
                self._policy.last = self._rows[-1][0]
            instead = self._policy.bad(element)
            if not instead:
                if not self._policy.early:  # which keeps it
                    self._keep(element)
            elif type(instead[0][0]) is Raised:
                self._taken += instead
                return instead[0]
            else:
                self._rows += instead
                self._taken.append(element)
        rows = self._rows
        if len(rows) < self._size and (self._drop or not rows):
            return None  # what is left stays here: a repair may still fill it up
        return self._cut()

    def _good_ones(self, stopped: Callable[[], bool]) -> Element | None:
        """Fill the group up. Answers the hole that ends the filling; None where it is full, or the input ends."""
        add = self._rows.append
        for element in islice(self._source, self._size - len(self._rows)):
            if type(element[0]) is not tuple:
                return element
            add(element)
            if stopped():
                break
        return None

    def _add(self, element: Element) -> None:
        """A good element, after those that it replaces."""
        if self._taken is not None:
            self._taken += [*self._policy.early, element]
        self._rows += self._policy.good(element)

    def _keep(self, hole: Element) -> None:
        """A hole that is left out: a repair puts those of a manifest back, so that a state tells which came."""
        if hole[0].known:
            assert self._taken is not None
            self._taken.append(hole)

    def _cut(self) -> Group:
        """The rows that are there as a group, as many as it takes."""
        rows, taken, size = self._rows, self._taken, self._size
        self._policy.last = rows[-1][0]
        self._rows, self._taken = rows[size:], None
        if taken is None:
            return Group(rows, taken=rows)
        # Stand-ins for early holes may be more rows than one group takes; then rows and elements taken correspond.
        cut = size if len(rows) > size else len(taken)
        self._taken = taken[cut:] or None
        return Group(rows[:size], taken=taken[:cut])

    def _next_aligned(self) -> Group | Element | None:
        rows = self._rows
        while len(rows) < self._size:
            element = None if self._run.stopped.is_set() else next(self._source, None)
            if element is None:
                break
            if type(element[0]) is Raised:
                return element
            rows.append(element)
        if len(rows) < self._size and (self._drop or not rows):
            return None
        self._rows = []
        bad = next((row[0] for row in rows if type(row[0]) is Hole), None)
        return Group(rows) if bad is None else batch_of_holes(rows, bad)

    @property
    def last(self) -> Any:
        """The last good element of the groups so far; None before the first."""
        return self._policy.last

    @property
    def clean(self) -> bool:
        """Whether nothing is held that belongs to groups to come."""
        return not (self._pending or self._rows or self._taken or self._policy.early)

    @property
    def known(self) -> Sequence[Element]:
        """Elements that a manifest says are bad, of those that a repair has put back."""
        return [element for element in self._pending if type(element[0]) is not tuple and element[0].known]

    @property
    def lags(self) -> bool:
        """Whether groups to come need an element of those before: the last good one, to stand in."""
        return self._run.settings.on_error == "replace" and self.reforms and self._ignores is None

    def take_back(self) -> list[Element]:
        """Everything taken that is in no group yet, as it came; it is forgotten here."""
        taken = [*(self._rows if self._taken is None else self._taken), *self._policy.early]
        self._rows, self._taken, self._policy.early = [], None, []
        return taken

    def put_back(self, elements: Sequence[Element], last: Any) -> None:
        """Put elements in front of everything that was not taken; `last` is the last good one before them."""
        self._pending.extendleft(reversed(elements))
        self._policy.last = last


def batch_of_holes(rows: Sequence[Element], hole: Hole) -> Element:
    """A batch that is missing because of one of its rows; it remembers how many rows it had."""
    return Hole(hole.error, hole.known), BatchStream.of(rows), rows[0][2]


class MicroBatcher:
    """Elements into groups that keep their places: the rows become elements again, holes stay."""

    reforms = False
    clean = True
    lags = False
    known: Sequence[Element] = ()

    def __init__(self, source: Iterator[Element], size: int, run: Run) -> None:
        self._source = source
        self._size = size
        self._run = run

    def next(self) -> Group | Element | None:
        """The next group, None at the end."""
        rows: list[Element] = []
        order: list[int | Element] = []
        for element in self._source:
            if self._run.stopped.is_set():
                return None
            if type(element[0]) is not tuple:
                order.append(element)
            else:
                order.append(len(rows))
                rows.append(element)
            if len(order) == self._size:
                break
        return Group(rows, order) if order else None
