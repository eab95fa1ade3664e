"""resumable: a batcher whose position can be saved and restored.

A batcher usually holds nothing between two groups. Then its state is that of its input, taken every so often, and the
number of groups made since; a resume makes these again and drops them, which is host work: nothing is decoded. The
state starts further back after a repair, until the elements that it put back are used up, and under "replace", where
a group needs the last good element before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any

from ...classes import dataclass
from ...errors import DataError, DecodeError, StateError
from ...serial.errors import error_class
from ..bad.found import LONGEST, as_before
from ..element import Element, Found, Hole, locate
from ..run import SILENT_REPLAY, Context
from ..state.checkpoints import Interval
from ..state.snapshot import Since, State, Unsupported, check_count, int_part, part
from ..step import Running
from .batcher import Batcher, Group, MicroBatcher
from .unbatch import RowsOfBatch

__all__ = ["AnyBatcher", "Checkpoint", "ResumableBatcher"]

AnyBatcher = Batcher | MicroBatcher | RowsOfBatch


Bad = dict[tuple[int, int], DataError]
"""Errors of elements, by (stream key, position)."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A position between two items that a batcher returns.

    Attributes:
        base: the state of the input at an earlier position.
        items: items returned since then.
        bad: errors of elements since then that only an executor found, by (stream key, position).
        since: how many bad elements any step had found there.
        known: elements since then that a manifest says are bad, in the order of the input, and perhaps later ones:
            without the manifest nothing would leave them out when the items are made again.
        count: how many of `known` came before this position.
        mixed: elements come in any order, so the items cannot be made again.
    """

    base: State
    items: int
    bad: Bad
    since: int = 0
    known: Sequence[tuple[tuple[int, int], DataError]] = ()
    count: int = 0
    mixed: bool = False

    def state(self, given: int = 0) -> State:
        """Return the position as a part of a state.

        Args:
            given: elements of the next item that were given already.
        """
        if self.mixed and (self.items or given):
            return Unsupported(
                "state_dict needs elements that can be read again after a repair and among the elements of one group, "
                "got some that came in any order; call it after a later batch, or use deterministic=True"
            )
        errors = {**self.bad, **dict(self.known[: self.count])}
        bad = [
            [key, position, type(error).__name__, error.stage, error.reason[:LONGEST]]
            for (key, position), error in sorted(errors.items(), key=itemgetter(0))
        ]
        return {"base": self.base, "items": self.items, "bad": bad, "since": Since(self.since)}


class ResumableBatcher:
    """A batcher and its input, whose position can be saved.

    Args:
        flow: the step.
        at: the context in which it is opened.
        state: of a `Checkpoint`.
        make: makes the batcher.

    Attributes:
        batcher: makes groups of the input.
        source: the input.
    """

    def __init__(self, flow: Any, at: Context, state: State, make: Callable[[Iterator[Element]], AnyBatcher]) -> None:
        self._base = part(state, "base")
        self._run = at.run
        self._since = at.since if state is None else 0
        self.source = as_before(at, flow, flow.source.open(at, self._base), reported=True)
        self._bad: Bad = {} if state is None else errors_of(state["bad"])
        self._known = _Known(self.source, self._bad)
        self.batcher = make(self._known if self._bad or at.run.bad.known else self.source)
        self._items = 0
        self._count = 0  # elements
        self._mixed = at.run.any_order
        # Groups of elements whose places are still to come may be of another size when they are made again.
        self._interval = Interval(always=self._mixed or bool(at.run.asked))
        # Under "replace": the state of the input after the last item, and how many known holes came before; or None.
        self._before: tuple[State, int, int] | None = None
        if state is not None:
            self._replay(int_part(state, "items"))

    def _replay(self, items: int) -> None:
        """Make items again and drop them.

        Raises:
            StateError: there are fewer.
        """
        check_count(items)
        before = SILENT_REPLAY.get()
        try:
            SILENT_REPLAY.set(True)
            self._items = sum(1 for _ in islice(iter(self.batcher.next, None), items))
            if self._items < items and not self._run.stopped.on:
                raise StateError(
                    f"load_state_dict needs the data that the state was taken over, got an input that ends "
                    f"{items - self._items} batches before it"
                )
        finally:
            SILENT_REPLAY.set(before)

    def checkpoint(self) -> Checkpoint:
        """Return the current position."""
        holes = self._known.holes
        return Checkpoint(
            self._base, self._items, self._bad, self._since, holes, len(holes) - len(self.batcher.known), self._mixed
        )

    def exact(self) -> Checkpoint:
        """Return the current position, with the input's current state as the base where possible."""
        if self._items and self.batcher.clean and not self.batcher.lags:
            self._rebase(self.source.snapshot(), len(self._known.holes), self._run.found)
        return self.checkpoint()

    def next(self) -> Group | Element | None:
        """Return the batcher's next item."""
        item = self.batcher.next()
        if item is None:
            return None
        self._items += 1
        self._count += len(item.rows) if isinstance(item, Group) else 1
        batcher = self.batcher
        if self._before is not None and isinstance(item, Group) and has_good(item):
            self._rebase(*self._before, 1)
        self._before = None
        if batcher.clean and self._interval.due(self._count):
            point = self.source.snapshot(), len(self._known.holes), self._run.found
            self._interval.taken(self._count, point[0])
            if batcher.lags:
                self._before = point
            else:
                self._rebase(*point)
        return item

    def _rebase(self, base: State, holes: int, since: int, items: int = 0) -> None:
        """Take a new base: a state of the input, `items` items back, before which `holes` known holes came.

        `since`: how many bad elements had been found there.
        """
        self._base, self._items, self._bad = base, items, dict(self._known.bad)
        self._since = since
        self._known.holes = self._known.holes[holes:]  # a new list: earlier checkpoints keep theirs

    def rewind(self, point: Checkpoint, bad: Iterable[tuple[Element, DataError]]) -> None:
        """Go back to a point: a repair has put everything after it back, with these elements as holes."""
        found = {(stream.key, position): error.bare() for (_, stream, position), error in bad}
        self._base, self._items, self._bad = point.base, point.items, {**point.bad, **found}
        self._since = point.since
        came = [((stream.key, position), hole.error) for hole, stream, position in self.batcher.known]
        self._known.holes = [*point.known[: point.count], *came]
        self._before = None


class _Known(Iterator[Element]):
    """An input some of whose elements are known to be bad.

    Attributes:
        bad: errors from a state whose elements have not come yet.
        holes: holes from a manifest that came since the base.
    """

    def __init__(self, inner: Running, bad: Bad) -> None:
        self._items = iter(inner)
        self.bad = dict(bad)
        self.holes: list[tuple[tuple[int, int], DataError]] = []

    def __next__(self) -> Element:
        element = next(self._items)
        value, stream, position = element
        if type(value) is not tuple:
            if value.known:
                self.holes.append(((stream.key, position), value.error))
            if self.bad.pop((stream.key, position), None) is not None:
                value.found = Found(again=True)
            return element
        error = self.bad.pop((stream.key, position), None) if self.bad else None
        return (
            element
            if error is None
            else (Hole(locate(error, stream, position), found=Found(again=True)), stream, position)
        )


def errors_of(state: State) -> Bad:
    """Read the errors of elements from a state."""
    return {
        (key, position): error_class(kind, DecodeError)(reason, stage=stage)
        for key, position, kind, stage, reason in state
    }


def has_good(group: Group) -> bool:
    """Whether a group has a good element of its own, not replacements alone."""
    return any(type(element[0]) is tuple for element in group.taken)
