"""resumable: what a stage is made of in turn, and the state behind each of it.

A batcher holds nothing between two groups, as a rule. Then the state is that of its input, taken now and then; what was
formed since is formed again and forgotten: host work, nothing is decoded. It is the same while a repair has put
elements back, and under "replace", where a group needs the last good element before it: the state begins further back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

from ...errors import DataError, DecodeError
from ...serial.errors import error_class
from ..element import Element, Hole, locate
from ..run import SILENT_REPLAY, Context, Flow
from ..state.checkpoints import Interval
from ..state.snapshot import State, Unsupported, int_part, part
from ..step import Running
from .batcher import Batcher, Group, MicroBatcher
from .unbatch import RowsOfBatch

__all__ = ["AnyBatcher", "Checkpoint", "ResumableBatcher"]

AnyBatcher = Batcher | MicroBatcher | RowsOfBatch


KNOWN = 10_000
"""So many elements that a manifest says are bad are kept behind the base, about 0.5 KB each."""


LONGEST = 300
"""Letters of an error's reason that a state keeps."""


Bad = dict[tuple[int, int], DataError]
"""Errors of elements, by (stream key, position)."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A place between two items that a batcher gives.

    Attributes:
        base: the state of the input at an earlier place.
        items: what the batcher gave since then.
        bad: errors of elements since then that only an executor found to be bad, by (stream key, position).
        known: elements that a manifest says are bad, in the order in which they came. Those from number `first` up to
            `last` came since then: without the manifest nobody would leave them out where the items are formed again.
        first: see `known`.
        last: see `known`.
        mixed: elements come in any order: they cannot be formed again.
    """

    base: State
    items: int
    bad: Bad
    known: Sequence[tuple[tuple[int, int], DataError]] = ()
    first: int = 0
    last: int = 0
    mixed: bool = False

    def state(self, given: int = 0) -> State:
        """As a part of a state.

        Args:
            given: elements of the next item that were given.
        """
        if self.mixed and (self.items or given):
            return Unsupported(
                "state_dict needs elements that can be formed again between those that one group becomes and behind a "
                "repair, got some that came in any order; ask behind a later batch, or use deterministic=True"
            )
        bad = [
            [key, position, type(error).__name__, error.stage, error.reason[:LONGEST]]
            for (key, position), error in sorted(
                {**self.bad, **dict(self.known[self.first : self.last])}.items(), key=itemgetter(0)
            )
        ]
        return {"base": self.base, "items": self.items, "bad": bad}


class ResumableBatcher:
    """A batcher over an input, which says where it is.

    Args:
        flow: the input.
        at: where it is opened.
        state: of a `Checkpoint`.
        make: makes the batcher.

    Attributes:
        batcher: makes groups of the input.
        source: the input.
    """

    def __init__(self, flow: Flow, at: Context, state: State, make: Callable[[Iterator[Element]], AnyBatcher]) -> None:
        self._base = part(state, "base")
        self.source = flow.open(at) if self._base is None else flow.open(at, self._base)
        self._bad: Bad = {} if state is None else errors_of(state["bad"])
        self._known = _Known(self.source, self._bad)
        self.batcher = make(self._known if self._bad or at.run.bad.known else self.source)
        self._items = self._first = 0
        self._count = 0  # elements
        self._mixed = at.run.any_order
        self._interval = Interval(always=self._mixed)
        # Under "replace": the state of the input after the last item, if any, and `Checkpoint.first` there.
        self._before: tuple[State, int] | None = None
        if state is not None:
            self._replay(int_part(state, "items"), at)

    def _replay(self, items: int, at: Context) -> None:
        """Form what was formed since the base, and forget it."""
        before = SILENT_REPLAY.get()
        try:
            SILENT_REPLAY.set(True)
            while self._items < items and not at.run.stopped.is_set():
                if self.batcher.next() is None:
                    break
                self._items += 1
        finally:
            SILENT_REPLAY.set(before)

    def checkpoint(self) -> Checkpoint:
        """The present place."""
        holes = self._known.holes
        last = len(holes) - len(self.batcher.known)
        return Checkpoint(self._base, self._items, self._bad, holes, self._first, last, self._mixed)

    def exact(self) -> Checkpoint:
        """The present place, begun at the input's own present place if that is possible."""
        if self._items and self.batcher.clean and not self.batcher.lags:
            self._begin(self.source.snapshot(), len(self._known.holes))
        return self.checkpoint()

    def next(self) -> Group | Element | None:
        """What the batcher gives next."""
        item = self.batcher.next()
        if item is None:
            return None
        self._items += 1
        self._count += len(item.rows) if isinstance(item, Group) else 1
        batcher = self.batcher
        if batcher.lags:
            if self._before is not None and isinstance(item, Group) and has_good(item):
                self._begin(*self._before, 1)
            self._before = (self._take(), len(self._known.holes)) if batcher.clean and self._due() else None
        elif batcher.clean and self._due():
            self._begin(self._take(), len(self._known.holes))
        return item

    def _begin(self, base: State, first: int, items: int = 0) -> None:
        self._base, self._first, self._items, self._bad = base, first, items, dict(self._known.bad)
        if first >= KNOWN:  # the points that there are keep the old list
            self._known.holes, self._first = self._known.holes[first:], 0

    def _due(self) -> bool:
        return self._interval.due(self._count)

    def _take(self) -> State:
        state = self.source.snapshot()
        self._interval.taken(self._count, state)
        return state

    def back(self, point: Checkpoint, bad: Iterable[tuple[Element, DataError]]) -> None:
        """A repair has put everything behind a point back, with these elements as holes."""
        found = {(stream.key, position): error for (_, stream, position), error in bad}
        self._base, self._first, self._items, self._bad = point.base, point.first, point.items, {**point.bad, **found}
        came = [((stream.key, position), hole.error) for hole, stream, position in self.batcher.known]
        self._known.holes, self._first = [*point.known[point.first : point.last], *came], 0
        self._before = None


class _Known(Iterator[Element]):
    """An input some of whose elements are known to be bad.

    Attributes:
        bad: those of a state that did not come yet.
        holes: those of a manifest that came, which are holes already.
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
            self.bad.pop((stream.key, position), None)
            return element
        error = self.bad.pop((stream.key, position), None) if self.bad else None
        return element if error is None else (Hole(locate(error, stream, position)), stream, position)


def errors_of(state: State) -> Bad:
    """Errors of elements out of a state."""
    return {
        (key, position): error_class(kind, DecodeError)(reason, stage=stage)
        for key, position, kind, stage, reason in state
    }


def has_good(group: Group) -> bool:
    """Whether a group was made of an element that is good, not of stand-ins alone."""
    return any(type(element[0]) is tuple for element in group.taken)
