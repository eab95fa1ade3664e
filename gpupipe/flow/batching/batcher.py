"""batcher: groups of elements that one run of a graph computes. Holes leave here, as `on_error` says."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from ...classes import dataclass
from ..access import waits
from ..element import BatchStream, Element, Hole, Raised, is_element
from ..run import Context, Run

__all__ = ["Batcher", "Group", "MicroBatcher"]


@dataclass(slots=True)
class Group:
    """The input of one run of the graph.

    Attributes:
        rows: good elements.
        order: what to deliver: indices into `rows`, and holes. None delivers all rows as one batch.
        whole: the batch that the rows were taken from, if there was one.
        taken: what the rows were made of, in the order of the input: an element for each row, and errors raised between
            them.
    """

    rows: list[Element]
    order: list[int | Element] | None = None
    whole: Element | None = None
    taken: Sequence[Element] = ()


class Batcher:
    """Cuts consecutive elements into groups of `size`.

    Args:
        source: the elements.
        size: of a group.
        drop: leave out a short last group.
        run: its `on_error` says what becomes of holes; it counts those that leave here.
        aligned: something is zipped to these batches: a batch with a bad row becomes a hole, because filling it up
            with later rows would shift every row after it against the other side.
        ignores: holes are left out as `ignore_errors` does, whatever `on_error` says; True logs each of them. None
            where there is no `ignore_errors` before this step.

    Attributes:
        regroups: whether a bad row that the executor finds has the elements after it grouped again.
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
        self.regroups = not self._aligned
        self._source = iter(source)
        self._size = size
        self._drop = drop
        self._run = run
        self._policy = run.policy()
        self._pending: deque[Element] = deque()
        self._rows: list[Element] = []
        self._taken: list[Element] | None = None  # what the rows were made of, once that differs from them
        self._lacking: Hole | None = None  # the first bad one among the rows, see `_lacks`

    def next(self) -> Group | Element | None:
        """Return the next group, an error or hole as an element, or None at the end."""
        if self._aligned:
            return self._next_aligned()
        stopped = self._run.stopped
        while len(self._rows) < self._size:
            if stopped.on:
                return None
            if self._pending:
                element: Element | None = self._pending.popleft()
            else:
                element = self._fill() if self._taken is None else next(self._source, None)
            if element is None:
                if len(self._rows) == self._size or stopped.on:
                    continue
                break
            value = element[0]
            if type(value) is tuple:
                self._add(element)
                continue
            if self._taken is None:
                self._taken = self._rows.copy()
            if self._lacks(element, self._taken) or self._ignored(element):
                continue
            if self._rows:
                self._policy.follow(self._rows[-1])
            instead = self._policy.bad(element)
            if not instead:
                if not self._policy.early:  # else `early` holds it
                    self._keep(element)
            elif type(instead[0][0]) is Raised:
                self._taken += instead
                return instead[0]
            else:
                self._rows += instead
                self._taken.append(element)
        rows = self._rows
        if len(rows) < self._size and (error := self._policy.unreplaced()) is not None:
            return error
        if len(rows) < self._size and (self._drop or not rows):
            return None  # the rows stay here: a repair may put more elements back
        return self._cut()

    def _fill(self) -> Element | None:
        """Add good elements; return the hole that comes before the group is full, or None."""
        add, stopped = self._rows.append, self._run.stopped
        for element in islice(self._source, self._size - len(self._rows)):
            if type(element[0]) is not tuple:
                return element
            add(element)
            if stopped.on:
                break
        return None

    def _ignored(self, element: Element) -> bool:
        """Leave a bad element out as `ignore_errors` does; the error of a lost file is only marked."""
        if self._ignores is None:
            return False
        if element[0].error.lost:
            element[0].ignored = True
            return False
        self._run.leave_out(element, "left out", self._ignores)
        self._keep(element)
        return True

    def _lacks(self, element: Element, taken: list[Element]) -> bool:
        """Give a bad element that was good before a resume a row: its batch is bad, and those behind stay the same."""
        lacks = self._run.lacks(element)
        if lacks:
            self._lacking = self._lacking or element[0]
            self._rows.append(element)
            taken.append(element)
            self._policy.lack(element)
        return lacks

    def _add(self, element: Element) -> None:
        if self._taken is not None:
            self._taken += [*self._policy.early, element]
        self._rows += self._policy.good(element)

    def _keep(self, hole: Element) -> None:
        """Remember a hole from a manifest that is left out: a repair puts it back, so a state says that it came."""
        if hole[0].known:
            assert self._taken is not None
            self._taken.append(hole)

    def _cut(self) -> Group | Element:
        rows, taken, size = self._rows, self._taken, self._size
        bad, self._lacking = self._lacking, None  # it is one of the first `size`: they were too few when it came
        self._policy.follow(rows[-1])
        self._rows, self._taken = rows[size:], None
        if bad is not None:
            return batch_of_holes(rows[:size], bad)
        if taken is None:
            return Group(rows, taken=rows)
        # Replacements of early holes may be more rows than a group takes; then each row has one element in `taken`.
        cut = size if len(rows) > size else len(taken)
        self._taken = taken[cut:] or None
        return Group(rows[:size], taken=taken[:cut])

    def _next_aligned(self) -> Group | Element | None:
        rows = self._rows
        while len(rows) < self._size:
            element = None if self._run.stopped.on else next(self._source, None)
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
        """The columns of the last good element of the groups so far; None before the first."""
        return self._policy.last

    @property
    def clean(self) -> bool:
        """Whether no element is held for later groups."""
        return not (self._pending or self._rows or self._taken or self._policy.early)

    @property
    def known(self) -> Sequence[Element]:
        """The holes from a manifest among the elements that a repair put back."""
        return [element for element in self._pending if type(element[0]) is not tuple and element[0].known]

    @property
    def lags(self) -> bool:
        """Whether later groups need an element of earlier ones: the last good one, as a replacement."""
        return self._run.settings.on_error == "replace" and self.regroups and self._ignores is None

    def take_back(self) -> list[Element]:
        """Return and forget the elements that are in no group yet, in the order of the input."""
        taken = [*(self._rows if self._taken is None else self._taken), *self._policy.early]
        self._rows, self._taken, self._lacking, self._policy.early = [], None, None, []
        return taken

    def put_back(self, elements: Sequence[Element], last: Any) -> None:
        """Put elements before the rest of the input; `last` has the columns of the last good one before them."""
        self._pending.extendleft(reversed(elements))
        self._policy.last = last


def batch_of_holes(rows: Sequence[Element], hole: Hole) -> Element:
    """Make a batch with a bad row a hole, which keeps the identities of its rows."""
    return Hole(hole.error, hole.known, hole.found), BatchStream.of(rows), rows[0][2]


class MicroBatcher:
    """Cuts elements into groups whose rows become elements again; holes keep their places."""

    regroups = False
    clean = True
    lags = False
    known: Sequence[Element] = ()

    def __init__(self, source: Iterator[Element], size: int, at: Context) -> None:
        self._source = source
        self._size = size
        self._at = at
        self._taken = 0

    def next(self) -> Group | Element | None:
        """Return the next group, or None at the end."""
        rows: list[Element] = []
        order: list[int | Element] = []
        source, at = iter(self._source), self._at
        while not (order and at.run.asked and waits(at, self._taken)):
            element = next(source, None)
            if element is None:
                break
            if at.run.stopped.on:
                return None
            self._taken += is_element(element)
            if type(element[0]) is not tuple:
                order.append(element)
            else:
                order.append(len(rows))
                rows.append(element)
            if len(order) == self._size:
                break
        return Group(rows, order) if order else None
