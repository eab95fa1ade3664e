"""checkpoints: an input whose last elements may be had again, for steps that hold some.

A snapshot holds no payloads. So a step that holds elements says which ones by their numbers; the tape counts what it
gives, and marks places to begin again, often enough that little is read twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from time import perf_counter

from ...errors import StateError
from ..element import Element
from ..run import REPLAYING, Context, Flow
from .snapshot import Numbered, Numbers, State, below, drop, first_state, integers_json, number, these_integers

__all__ = ["Ahead", "Place", "Tape", "chosen"]

_first = itemgetter(0)


EVERY = 256
"""Elements between two marks at most, and the least where they come fast."""


SECONDS = 0.005
"""A mark that is older is due."""


SHARE = 30
"""Between two marks there are so many times the seconds that the last one took."""


class Tape:
    """An input whose last elements may be had again.

    Attributes:
        inner: what it gives.
        items: the elements, counted on their way.
        pairs: the same with their numbers.
        counts_itself: the positions of the elements are their numbers.

    Args:
        flow: the input.
        at: where it is opened.
        state: what `state` gave: the tape goes on behind `keep` elements.
    """

    __slots__ = ("_cost", "_due", "_marks", "_numbers", "_time", "counts_itself", "inner", "items", "pairs")

    def __init__(self, flow: Flow, at: Context, state: State = None) -> None:
        begin = 0 if state is None else number(state, "at")
        mark = None if state is None else below(state, "mark")
        self.inner = flow.open(at) if mark is None else flow.open(at, mark)
        self._numbers = Numbers(self.inner, begin)
        self.items: Iterator[Element] = self._numbers.items
        self.pairs: Iterator[tuple[Element, int]] = self._numbers.pairs
        self.counts_itself = isinstance(self.inner, Numbered)
        if self.counts_itself:
            self.items = iter(self.inner)
            self.pairs = ((element, element[2]) for element in self.items)
        self._marks: list[tuple[int, State]] = [(begin, first_state(self.inner, at) or mark)]
        self._cost = 0.0
        self._time = perf_counter()
        if state is not None:
            drop(self.items, number(state, "drop"), at)

    @property
    def count(self) -> int:
        """How many elements were taken since the pass began."""
        return self.inner.position() if isinstance(self.inner, Numbered) else self._numbers.count

    def due(self) -> bool:
        """Whether a mark is worth its cost now."""
        age = perf_counter() - self._time
        return age > SHARE * self._cost and (age > SECONDS or self.count - self._marks[-1][0] >= EVERY)

    def mark(self) -> None:
        """Mark this place."""
        begun = perf_counter()
        self._marks.append((self.count, self.inner.snapshot()))
        self._time = perf_counter()
        self._cost = self._time - begun

    def forget(self, keep: int) -> None:
        """No element before number `keep` is needed any more."""
        while len(self._marks) > 1 and self._marks[1][0] <= keep:
            del self._marks[0]

    @property
    def marks(self) -> int:
        """How many marks there are."""
        return len(self._marks)

    def here(self, ended: bool = False) -> Place:
        """The present place, from which a state can be made later.

        Args:
            ended: the input was closed; only a state further back can be made.
        """
        return Place(self.count, None if ended else (self.inner.snapshot(),), tuple(self._marks))

    def state(self, keep: int | None = None) -> State:
        """A state behind the first `keep` elements; behind all that were taken unless it is given."""
        now = self.count
        if keep is None or keep == now:
            return {"at": now, "mark": self.inner.snapshot(), "drop": 0}
        self.forget(keep)
        return behind(self._marks, keep)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tape stood.

    Attributes:
        count: elements that were taken.
        now: the state of the input, if it was open.
        marks: of the tape.
    """

    count: int
    now: tuple[State] | None
    marks: tuple[tuple[int, State], ...]

    def state(self, keep: int) -> State:
        """What `Tape.state` would have answered."""
        if keep == self.count and self.now is not None:
            return {"at": keep, "mark": self.now[0], "drop": 0}
        return behind(self.marks, keep)


def behind(marks: Sequence[tuple[int, State]], keep: int) -> State:
    """The state of a tape behind its first `keep` elements, from its last mark before them."""
    begin, mark = marks[max(bisect_right(marks, keep, key=_first) - 1, 0)]
    return {"at": begin, "mark": mark, "drop": keep - begin}


def chosen(items: Iterator[Element], wanted: Sequence[int], begin: int, end: int, at: Context) -> dict[int, Element]:
    """The elements with some numbers among those from `begin` to `end`, which `items` gives next. All are taken."""
    found: dict[int, Element] = {}
    last = begin
    for want in sorted(set(wanted)):
        drop(items, want - last, at)
        before = REPLAYING.get()
        try:
            REPLAYING.set(True)
            element = next(items, None)
        finally:
            REPLAYING.set(before)
        if element is None:
            if at.run.stopped.is_set():
                return found
            raise StateError(
                "load_state_dict needs the data that the state was taken over: the input has fewer elements"
            )
        found[want] = element
        last = want + 1
    drop(items, end - last, at)
    return found


class Ahead:
    """The input of a step that takes elements before it has given what became of the ones before, one for each.

    Attributes:
        tape: the input.
        again: elements, with their numbers, that were in work when the state was taken.
    """

    __slots__ = ("again", "tape")

    def __init__(self, flow: Flow, at: Context, state: State = None) -> None:
        self.tape = Tape(flow, at, below(state, "input"))
        self.again: list[tuple[Element, int]] = []
        if state is not None:
            begin, held = self.tape.count, these_integers(below(state, "held"))
            end = begin + number(state, "taken")
            wanted = [begin + place for place in held]
            if any(place >= end for place in wanted):
                raise StateError("load_state_dict needs a state of this chain, got one that is ahead of itself")
            found = chosen(self.tape.items, wanted, begin, end, at)
            self.again = [(found[place], place) for place in wanted if place in found]

    def next(self, held: Iterable[int]) -> tuple[Element, int] | None:
        """The next element and its number; None at the end.

        Args:
            held: the numbers of the elements in work.
        """
        tape = self.tape
        if tape.due():
            tape.mark()
            tape.forget(min(held, default=tape.count))
        return next(tape.pairs, None)

    def state(self, held: Sequence[int]) -> State:
        """The state of the input, and which elements are in work."""
        count = self.tape.count
        begin = min(held, default=count)
        return {
            "input": self.tape.state(begin),
            "taken": count - begin,
            "held": integers_json([place - begin for place in held]),
        }
