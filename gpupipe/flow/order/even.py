"""even: shards of one size each, of inputs whose size is known at their end only.

Every shard is to have as many elements as every other, so that ranks that train together make equally many steps.
"drop" leaves out a last round that not every shard has an element of; "wrap" fills it up with the first elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from ...errors import StateError
from ...plan.index import ENDLESS
from ..access import RandomAccess, Remapped, access
from ..element import Element, Raised
from ..memory import bytes_of
from ..run import SILENT_REPLAY, Context, Flow
from ..state.checkpoints import CheckpointedInput
from ..state.snapshot import State, fast_forward, int_part, part
from ..step import Running, close

__all__ = ["EvenFlow", "even_size"]

KEPT = 1 << 24
"""Bytes of first elements that are kept for the end of a pass; larger ones are read again there."""


def even_size(n: int, shards: int, wrap: bool) -> int:
    """How many of `n` elements each shard has."""
    return -(-n // shards) if wrap else n // shards


@dataclass(frozen=True, slots=True)
class EvenFlow:
    """Every `shards`-th element, equally many for every `index`.

    Attributes:
        wrap: the last round is filled up with the first elements, which keep their identities; else it is left out.
    """

    source: Flow
    shards: int
    index: int
    wrap: bool

    def open(self, at: Context, state: State = None) -> Running:
        return _Wrapping(self, at, state) if self.wrap else _Dropping(self, at, state)

    def access(self, at: Context) -> RandomAccess:
        source = access(self.source, at)
        n = source.size
        size = n if n == ENDLESS else even_size(n, self.shards, self.wrap)
        return Remapped(source, size, lambda places: (self.index + places * self.shards) % n)


class _Dropping(Running):
    """An element is given once the last one of its round is there. An error is not held back."""

    def __init__(self, flow: EvenFlow, at: Context, state: State) -> None:
        self._input = CheckpointedInput(flow.source, at, part(state))
        self._index = flow.index
        self._place = 0 if state is None else int_part(state, "place")  # in the round
        self._errors = 0  # that were given while an element was held back
        self._begin: int | None = None  # elements of the input before the one that is held back
        self.source = self._input.inner
        self.items = self._whole_rounds(flow.shards)
        if state is not None:
            fast_forward(self.items, int_part(state, "errors"), at)

    def _whole_rounds(self, shards: int) -> Iterator[Element]:
        source, index, place = self._input, self._index, self._place
        held: Element | None = None
        for element in source.items:
            if type(element[0]) is Raised:
                self._place = place
                self._errors += held is not None
                yield element
                continue
            if place == index:
                held, self._begin = element, source.count - 1
            place += 1
            if place < shards:
                continue
            place = self._place = self._errors = 0
            self._begin = None
            if source.due():
                source.checkpoint(source.count)
            given, held = held, None
            assert given is not None
            yield given

    def snapshot(self) -> State:
        """Where the input stands and the place in the round; where an element is held back, those in front of it."""
        if self._begin is None:
            return {"source": self._input.state(), "place": self._place, "errors": 0}
        return {"source": self._input.state(self._begin), "place": self._index, "errors": self._errors}


class _Wrapping(Running):
    """An element is given as it comes; where the last round lacks one, it is one of the first.

    The first elements are kept for that, as long as they are small and this pass began at the begin. Otherwise the
    input is opened once more at the end, as it was opened then.
    """

    def __init__(self, flow: EvenFlow, at: Context, state: State) -> None:
        self._flow = flow
        self._at = at
        self._seen = 0 if state is None else int_part(state, "seen")
        self._wrapped = state is not None and bool(part(state, "wrapped"))
        self._first: list[Element] | None = [] if state is None else None
        self._stopped = at.run.stopped.is_set
        self.source = None if self._wrapped else flow.source.open(at, part(state))
        self.items = self._given()

    def _given(self) -> Iterator[Element]:
        if self.source is None:
            return
        shards, index = self._flow.shards, self._flow.index
        left, room = (index - self._seen) % shards, KEPT
        for element in self.source:
            if type(element[0]) is Raised:
                yield element
                continue
            if self._seen < index and self._first is not None:
                room -= bytes_of(element)
                self._first = [*self._first, element] if room >= 0 else None
            self._seen += 1
            if not left:
                left = shards
                yield element
            left -= 1
        place = self._seen % shards
        if 0 < place <= index and not self._stopped():
            first = self._one_of_the_first((index - place) % self._seen)
            if first is not None:
                self._wrapped = True
                yield first

    def _one_of_the_first(self, place: int) -> Element | None:
        """The element with a number; None if the run was stopped."""
        if self._first is not None:
            return self._first[place]
        again = self._flow.source.open(self._at)
        before = SILENT_REPLAY.get()
        try:
            try:
                SILENT_REPLAY.set(True)
                found = (element for element in again if type(element[0]) is not Raised)
                element = next(islice(found, place, None), None)
            finally:
                SILENT_REPLAY.set(before)
        finally:
            close(again)
        if element is None and not self._stopped():
            raise StateError(
                f"shard({self._flow.shards}, {self._flow.index}, even='wrap') needs the first elements of its input "
                f"again, got an input that ends before number {place}; give it one that can be gone through again, or "
                f"use even='drop'"
            )
        return element

    def snapshot(self) -> State:
        """Where the input stands, and how many elements it gave."""
        source = None if self._wrapped or self.source is None else self.source.snapshot()
        return {"source": source, "seen": self._seen, "wrapped": self._wrapped}
