"""even: shards of equal size, for inputs whose size is only known at their end.

Ranks that train together must make equally many steps. A round is one element for every shard: "drop" leaves out an
incomplete last round, "wrap" completes it with the first elements of the input.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from ...classes import dataclass
from ...errors import StateError
from ...plan.index import ENDLESS
from ..access import Padded, RandomAccess, access
from ..bad.found import READ_AGAIN
from ..buffer_sizes import bytes_of
from ..element import Element, Raised, repeated
from ..run import SILENT_REPLAY, Context, Flow
from ..state.checkpoints import CheckpointedInput
from ..state.snapshot import Since, State, fast_forward, int_part, part
from ..step import Running, close

__all__ = ["EvenFlow", "even_size"]

KEPT = 1 << 24
"""Bytes of first elements that "wrap" keeps for the end of a pass; if they have more, they are read again."""


def even_size(n: int, shards: int, wrap: bool) -> int:
    """The number of elements in each of the shards of `n` elements."""
    return -(-n // shards) if wrap else n // shards


@dataclass(frozen=True, slots=True)
class EvenFlow:
    """Every `shards`-th element, equally many for every `index`.

    Attributes:
        wrap: complete the last round with the first elements, which keep their identities and are marked as
            replacements; else leave it out.
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
        if self.shards == 1:
            return source
        size = n if n == ENDLESS else even_size(n, self.shards, self.wrap)
        return Padded(source, size, lambda places: self.index + places * self.shards)


class _Dropping(Running):
    """Gives an element once its round is complete. Errors pass at once."""

    def __init__(self, flow: EvenFlow, at: Context, state: State) -> None:
        self._input = CheckpointedInput(flow.source, at, part(state))
        self._index = flow.index
        self._index_in_round = 0 if state is None else int_part(state, "place")
        self._held_at: int | None = None  # number of the element that is held back
        self.source = self._input.inner
        self.items = self._whole_rounds(flow.shards)
        if state is not None and "errors" in state:  # of an earlier version: passed on while an element is held back
            fast_forward(self.items, int_part(state, "errors"), at)

    def _whole_rounds(self, shards: int) -> Iterator[Element]:
        source, index, in_round = self._input, self._index, self._index_in_round
        held: Element | None = None
        for element, number in chain(source.again(), source.pairs):
            if type(element[0]) is Raised:
                self._index_in_round = in_round
                yield element
                continue
            if in_round == index:
                held, self._held_at = element, number
            in_round += 1
            if in_round < shards:
                continue
            in_round = self._index_in_round = 0
            self._held_at = None
            if source.due():
                source.checkpoint(source.count)
            given, held = held, None
            assert given is not None
            yield given

    def snapshot(self) -> State:
        """The state of the input and the index in the round, both before an element that is held back."""
        if self._held_at is None:
            return {"source": self._input.state(), "place": self._index_in_round}
        return {"source": self._input.state(self._held_at), "place": self._index}


class _Wrapping(Running):
    """Gives elements as they come, and one of the first elements if the last round lacks one.

    The first elements are kept for that if they are small and this pass was not resumed. Otherwise the input is opened
    again at the end, from its start.
    """

    def __init__(self, flow: EvenFlow, at: Context, state: State) -> None:
        self._flow = flow
        self._at = at
        self._seen = 0 if state is None else int_part(state, "seen")
        self._wrapped = state is not None and bool(part(state, "wrapped"))
        self._first: list[Element] | None = [] if state is None else None
        self._stopped = at.run.stopped
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
        in_round = self._seen % shards
        if 0 < in_round <= index and not self._stopped.on:
            first = self._one_of_the_first((index - in_round) % self._seen)
            if first is not None:
                self._wrapped = True
                yield repeated(first)

    def _one_of_the_first(self, index: int) -> Element | None:
        """The element at an index; None if the run was stopped."""
        if self._first is not None:
            return self._first[index]
        again = self._flow.source.open(self._at)
        before = SILENT_REPLAY.get()
        try:
            try:
                SILENT_REPLAY.set(True)
                READ_AGAIN.set(True)
                found = (element for element in again if type(element[0]) is not Raised)
                element = next(islice(found, index, None), None)
            finally:
                SILENT_REPLAY.set(before)
                READ_AGAIN.set(False)
        finally:
            close(again)
        if element is None and not self._stopped.on:
            raise StateError(
                f"shard({self._flow.shards}, {self._flow.index}, even='wrap') needs the first elements of its input "
                f"again, got an input that ends before index {index}; give it one that can be iterated again, or "
                f"use even='drop'"
            )
        return element

    def snapshot(self) -> State:
        """The snapshot of the input, and how many elements it gave; the first ones may be made again at the end."""
        source = None if self._wrapped or self.source is None else self.source.snapshot()
        return {"source": source, "seen": self._seen, "wrapped": self._wrapped, "bad": Since(self._at.since)}
