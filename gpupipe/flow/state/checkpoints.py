"""checkpoints: an input whose last elements may be had again, for steps that hold some.

A snapshot holds no payloads. So a step that holds elements says which ones: records by file and offset, others by
their numbers in the input. The input counts what it gives and takes a checkpoint now and then, a snapshot to go on
from, often enough that little is read twice. Checkpoints are taken by count, never by the clock: what is read again
does not depend on how fast a machine is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from ...errors import StateError
from ..element import Element
from ..run import SILENT_REPLAY, Context, Flow
from ..step import close
from .buffer import held_elements, held_json, is_record
from .snapshot import Deferred, Numbered, Numbers, State, fast_forward, int_part, part

__all__ = ["EVERY", "CheckpointedInput", "InputAhead", "Interval", "interval"]

_first = itemgetter(0)


EVERY = 64
"""Elements between two checkpoints at least."""


PER_PART = 32
"""Elements for each part of a snapshot, where it has many: some 1 us each, and an element costs 1 us and more."""


class Interval:
    """Says when the next checkpoint is due, by count.

    Args:
        count: elements before the first.
        always: after every element. In any order nothing can be read again.
        every: elements between two checkpoints at least.
    """

    __slots__ = ("_always", "_every", "_next")

    def __init__(self, count: int = 0, always: bool = False, every: int = EVERY) -> None:
        self._always = always
        self._every = every
        self._next = count + every

    def due(self, count: int) -> bool:
        """Whether a checkpoint is worth its cost behind so many elements."""
        return count >= self._next or self._always

    def taken(self, count: int, state: State) -> None:
        """One was taken behind so many elements: the larger it is, the later is the next one."""
        self._next = count + interval(state, self._every)


def interval(state: State, every: int = EVERY) -> int:
    """Elements until the next checkpoint after this one: the more, the more it cost to take."""
    return max(every, PER_PART * parts(state))


def parts(state: State) -> int:
    """How many parts a snapshot has, which it costs to take it."""
    if isinstance(state, dict):
        return sum(map(parts, state.values()), 1)
    if isinstance(state, (list, tuple)):
        return sum(map(parts, state), 1)
    return state.cost() if isinstance(state, Deferred) else 0


class CheckpointedInput:
    """An input whose last elements may be had again.

    Attributes:
        inner: what it gives.
        items: the elements, counted on their way.
        pairs: the same with their numbers.
        recovered: the elements that `holding` named in a state, in their order, with their numbers; a record has none
            that anybody needs: -1. Fewer if the run is stopped.

    Args:
        flow: the input.
        at: where it is opened.
        state: what `state` or `holding` gave: it goes on there.
        always: take a checkpoint after every element, see `Interval`.
        every: elements between two checkpoints at least.
    """

    __slots__ = ("_at", "_checkpoints", "_interval", "_numbers", "inner", "items", "pairs", "recovered")

    def __init__(self, flow: Flow, at: Context, state: State = None, always: bool = False, every: int = EVERY) -> None:
        begin, place = (0, None) if state is None else (int_part(state, "at"), part(state, "input"))
        self._at = at
        self.inner = flow.open(at, place)
        self._numbers = Numbers(self.inner, begin)
        self.items: Iterator[Element] = self._numbers.items
        self.pairs: Iterator[tuple[Element, int]] = self._numbers.pairs
        if isinstance(self.inner, Numbered):  # the positions of the elements are their numbers
            self.items = iter(self.inner)
            self.pairs = ((element, element[2]) for element in self.items)
        self._checkpoints: list[tuple[int, State]] = [(begin, place)]
        self._interval = Interval(begin, always, every)
        self.recovered: list[tuple[Element, int]] = []
        if state is not None:
            try:
                fast_forward(self.items, int_part(state, "skip"), at)
                if "held" in state:
                    begin = self.count
                    end = begin + int_part(state, "taken")
                    self.recovered = held_elements(state["held"], lambda some: self.recover(some, end), begin, at)
            except BaseException:
                close(self.inner)
                raise

    def recover(self, numbers: Sequence[int], end: int) -> dict[int, Element]:
        """The elements with some numbers among those that come next, up to number `end`, which are all taken."""
        found: dict[int, Element] = {}
        for wanted in sorted(set(numbers)):
            fast_forward(self.items, wanted - self.count, self._at)
            before = SILENT_REPLAY.get()
            try:
                SILENT_REPLAY.set(True)
                element = next(self.items, None)
            finally:
                SILENT_REPLAY.set(before)
            if element is None:
                if self._at.run.stopped.is_set():
                    return found
                raise StateError(
                    "load_state_dict needs the data that the state was taken over: the input has fewer elements"
                )
            found[wanted] = element
        fast_forward(self.items, end - self.count, self._at)
        return found

    @property
    def count(self) -> int:
        """How many elements were taken since the pass began."""
        return self.inner.position() if isinstance(self.inner, Numbered) else self._numbers.count

    def due(self) -> bool:
        """Whether a checkpoint is worth its cost now."""
        return self._interval.due(self.count)

    def checkpoint(self, oldest: int) -> None:
        """Take a checkpoint. No element before number `oldest` is needed any more."""
        count, state = self.count, self.inner.snapshot()
        self._checkpoints.append((count, state))
        self._interval.taken(count, state)
        self.discard_before(oldest)

    def discard_before(self, oldest: int) -> None:
        """Forget the checkpoints that only elements before a number need."""
        checkpoints = self._checkpoints
        while len(checkpoints) > 1 and checkpoints[1][0] <= oldest:
            del checkpoints[0]

    @property
    def checkpoints(self) -> int:
        """How many checkpoints there are."""
        return len(self._checkpoints)

    def state(self, keep: int | None = None) -> State:
        """The state behind the first `keep` elements; behind all that were taken unless it is given."""
        now = self.count
        if keep is None or keep == now:
            return {"at": now, "input": self.inner.snapshot(), "skip": 0}
        return self.back(keep)

    def back(self, keep: int) -> State:
        """The state behind the first `keep` elements, from a checkpoint. Any thread may ask."""
        return behind(tuple(self._checkpoints), keep)

    def holding(
        self,
        numbers: Sequence[int],
        elements: Sequence[Element] | None = None,
        ended: bool = False,
        step: object = "",
        taken: int | None = None,
    ) -> State:
        """The state behind all that were taken, and which of them the step holds; written down when it is asked for.

        Args:
            numbers: of these elements.
            elements: themselves, where they may be records, which need no number.
            ended: the input was closed.
            step: who holds records that come in any order, for a message; others have no state there.
            taken: so many elements count as taken; all that were unless it is given.
        """
        count = self.count
        now = (None,) if ended else (self.inner.snapshot(),) if taken in (None, count) else None
        mixed = str(step) if self._at.run.any_order else ""
        return _Holding(count if taken is None else taken, now, tuple(self._checkpoints), numbers, elements, mixed)


class InputAhead:
    """An input that one thread takes from, while another gives what was taken and says where that stands.

    Args:
        flow: the input; `open` opens it, in the thread that takes from it.
        at: where.
        state: what `state` gave.

    Attributes:
        given: elements that were given.
        input: once it is open.
    """

    __slots__ = ("_at", "_flow", "_state", "given", "input")

    def __init__(self, flow: Flow, at: Context, state: State) -> None:
        self._flow, self._at, self._state = flow, at, state
        self.given = 0 if state is None else int_part(state, "at") + int_part(state, "skip")
        self.input: CheckpointedInput | None = None

    def open(self) -> CheckpointedInput:
        """Open the input where the state says."""
        self.input = CheckpointedInput(self._flow, self._at, self._state, always=self._at.run.any_order)
        return self.input

    def items(self) -> Iterator[Element]:
        """The elements, with a checkpoint behind those where one is due."""
        source = self.open() if self.input is None else self.input
        for element in source.items:
            if source.due():
                source.checkpoint(self.given)
            yield element

    def state(self) -> State:
        """The state behind the elements that were given."""
        if self.input is None:
            return {"at": 0, "input": None, "skip": 0} if self._state is None else self._state
        return self.input.back(self.given)

    def close(self) -> None:
        """Close the input."""
        if self.input is not None:
            close(self.input.inner)


@dataclass(frozen=True, slots=True)
class _Holding(Deferred):
    """An input and what a step held of it, as they were.

    Attributes:
        count: elements that were taken.
        now: the state of the input behind them, where that is known; none is needed of one that was closed.
        checkpoints: of the input.
        numbers: of the elements that were held.
        elements: see `CheckpointedInput.holding`.
        mixed: the step, if what was taken cannot be had again: it came in any order.
    """

    count: int
    now: tuple[State] | None
    checkpoints: tuple[tuple[int, State], ...]
    numbers: Sequence[int]
    elements: Sequence[Element] | None
    mixed: str

    def cost(self) -> int:
        return 1 + len(self.numbers) // 64 + (0 if self.now is None else parts(self.now))

    def json(self) -> State:
        elements: Sequence[Any] = [None] * len(self.numbers) if self.elements is None else self.elements
        entries = list(zip(elements, self.numbers, strict=True))
        others = [place for element, place in entries if element is None or not is_record(element)]
        if others and self.mixed:
            raise StateError(
                f"state_dict needs records in {self.mixed}, as some step below it gives what is ready first, got "
                "elements that no file has at an offset; use deterministic=True there, or another order of the steps"
            )
        begin = min(others, default=self.count)
        if begin < self.count or self.now is None:
            place = behind(self.checkpoints, begin)
        else:
            place = {"at": self.count, "input": self.now[0], "skip": 0}
        return {**place, "taken": self.count - begin, "held": held_json(entries, begin)}


def behind(checkpoints: Sequence[tuple[int, State]], keep: int) -> State:
    """The state behind the first `keep` elements, from the last checkpoint before them."""
    begin, place = checkpoints[max(bisect_right(checkpoints, keep, key=_first) - 1, 0)]
    return {"at": begin, "input": place, "skip": keep - begin}
