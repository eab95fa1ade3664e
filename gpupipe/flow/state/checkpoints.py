"""checkpoints: an input whose last elements can be read again, for steps that hold some.

A snapshot holds no payloads. So a step that holds elements says which ones: records by file and offset, others by
their numbers in the input. The input counts its elements and now and then takes a checkpoint, a snapshot to resume
from, often enough that little is read twice. Checkpoints are taken by count, never by the clock: what is read again
does not depend on the speed of the machine.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

from ...classes import dataclass
from ...errors import StateError
from ..bad.found import as_before
from ..element import Element, Raised
from ..run import SILENT_REPLAY, Context, Flow
from ..step import close
from .buffer import held_elements, held_json, is_record
from .snapshot import Deferred, Numbered, Numbers, Since, State, fast_forward, int_part, part

__all__ = ["EVERY", "PER_PART", "CheckpointedInput", "InputAhead", "Interval"]

_first = itemgetter(0)


Point = tuple[int, State, int]
"""A checkpoint: elements before it, the state of the input, and how many bad elements had been found."""


EVERY = 64
"""Minimum number of elements between two checkpoints."""


PER_PART = 32
"""Elements between checkpoints for each part of a snapshot: a part costs about 1 us, an element 1 us and more."""


class Interval:
    """Says when the next checkpoint is due, by count.

    Args:
        count: elements taken so far.
        always: take one after every element: elements that come in any order cannot be read again.
        every: minimum number of elements between two checkpoints.
        per_part: elements between two checkpoints for each part of a snapshot.

    Attributes:
        next: the number of elements after which it is due.
    """

    __slots__ = ("_always", "_every", "_per_part", "_step", "_taken", "next")

    def __init__(self, count: int = 0, always: bool = False, every: int = EVERY, per_part: int = PER_PART) -> None:
        self._always = always
        self._per_part = per_part
        self._every = self._step = every
        self.next = count + every
        self._taken = 0

    def due(self, count: int) -> bool:
        """Whether a checkpoint is worth its cost after `count` elements."""
        return count >= self.next or self._always

    def taken(self, count: int, state: State) -> None:
        """Note that one was taken after `count` elements: the larger it is, the later is the next one.

        Its size is looked at the first, second, fourth, eighth ... time: counting the parts costs as much as taking it.
        """
        self._taken += 1
        if not self._taken & (self._taken - 1):
            self._step = max(self._every, self._per_part * parts(state))
        self.next = count + self._step


def parts(state: State) -> int:
    """The number of parts of a snapshot, which is what it costs to take it."""
    if isinstance(state, dict):
        return sum(map(parts, state.values()), 1)
    if isinstance(state, (list, tuple)):
        return sum(map(parts, state), 1)
    return state.cost() if isinstance(state, Deferred) else 0


class CheckpointedInput:
    """An input whose last elements can be read again.

    Attributes:
        inner: the running input.
        items: its elements, which are counted.
        pairs: its elements with their numbers.
        recovered: the elements that `holding` named in the state, in that order, with their numbers (-1 for a record,
            which needs none). Fewer if the run is stopped.

    Args:
        flow: the input.
        at: where it is opened.
        state: what `state` or `holding` returned, to resume from.
        always: take a checkpoint after every element, see `Interval`.
        every: minimum number of elements between two checkpoints.
        step: the step whose input it is, where it may find elements bad.
    """

    __slots__ = ("_at", "_checkpoints", "_end", "_interval", "_numbers", "inner", "items", "pairs", "recovered")

    def __init__(
        self,
        flow: Flow,
        at: Context,
        state: State = None,
        always: bool = False,
        every: int = EVERY,
        step: Flow | None = None,
    ) -> None:
        start, inner_state = (0, None) if state is None else (int_part(state, "at"), part(state, "input"))
        self._at = at
        self.inner = flow.open(at, inner_state) if step is None else as_before(at, step, flow.open(at, inner_state))
        self._numbers = Numbers(self.inner, start)
        self.items = self._numbers.items
        self.pairs = self._numbers.pairs
        if isinstance(self.inner, Numbered):  # the positions of the elements are their numbers
            self.items = iter(self.inner)
            self.pairs = ((element, element[2]) for element in self.items)
        number = at.since if state is None else 0
        self._checkpoints: list[Point] = [(start, inner_state, number)]
        self._interval = Interval(start, always, every)
        self.recovered: list[tuple[Element, int]] = []
        self._end = 0  # number of elements that were taken before the state
        if state is not None:
            try:
                fast_forward(self.items, int_part(state, "skip"), at)
                first = self.count
                self._end = first + (int_part(state, "taken") if "taken" in state else 0)
                if "held" in state:
                    self.recovered = held_elements(state["held"], self._recover, first, at)
            except BaseException:
                close(self.inner)
                raise

    def _recover(self, numbers: Sequence[int]) -> dict[int, Element]:
        """Take all elements that were taken before the state, and return those with the given numbers."""
        found: dict[int, Element] = {}
        for wanted in sorted(set(numbers)):
            fast_forward(self.items, wanted - self.count, self._at)
            element = self._next_again(self.items)
            if element is None:
                return found
            found[wanted] = element
        fast_forward(self.items, self._end - self.count, self._at)
        return found

    def again(self, items: Iterator[Element] | None = None) -> list[tuple[Element, int]]:
        """Take the elements again that were taken before the state, and return them with their numbers.

        Without errors that were passed on then, and so not of what a policy leaves out.

        Args:
            items: made of the elements of this input, by default these.
        """
        found = []
        while self.count < self._end and (element := self._next_again(items or self.items)) is not None:
            if type(element[0]) is not Raised:
                found.append((element, self.count - 1))
            elif element[0].error.lost:
                self._at.run.need(element, "what follows")
        return found

    def _next_again(self, items: Iterator[Element]) -> Element | None:
        """Make an element again that came before the state; None at the end, or if the run is stopped."""
        before = SILENT_REPLAY.get()
        try:
            SILENT_REPLAY.set(True)
            element = next(items, None)
        finally:
            SILENT_REPLAY.set(before)
        if element is None and self.count < self._end and not self._at.run.stopped.on:
            raise StateError(
                "load_state_dict needs the data that the state was taken over: the input has fewer elements"
            )
        return element

    @property
    def count(self) -> int:
        """Elements taken since the pass started."""
        return self.inner.position() if isinstance(self.inner, Numbered) else self._numbers.count

    def due(self) -> bool:
        """Whether a checkpoint is worth its cost now."""
        return self._interval.due(self.count)

    def checkpoint(self, oldest: int) -> None:
        """Take a checkpoint. Elements before number `oldest` are not needed any more."""
        count, state = self.count, self.inner.snapshot()
        self._checkpoints.append((count, state, self._at.run.found))
        self._interval.taken(count, state)
        self.discard_before(oldest)

    def discard_before(self, oldest: int) -> None:
        """Drop the checkpoints that only elements before number `oldest` need."""
        checkpoints = self._checkpoints
        while len(checkpoints) > 1 and checkpoints[1][0] <= oldest:
            del checkpoints[0]

    @property
    def checkpoints(self) -> int:
        return len(self._checkpoints)

    def state(self, keep: int | None = None) -> State:
        """The state after the first `keep` elements, by default after all that were taken.

        A resume takes those between these and the position by `again`.
        """
        now = self.count
        keep = now if keep is None else keep
        start = {"at": now, "input": self.inner.snapshot(), "skip": 0} if keep == now else self.back(keep)
        return {**start, "taken": max(now, self._end) - keep}

    def back(self, keep: int) -> State:
        """The state after the first `keep` elements, from a checkpoint. Safe to call from any thread."""
        return after(tuple(self._checkpoints), keep)

    def holding(
        self,
        numbers: Sequence[int],
        elements: Sequence[Element] | None = None,
        ended: bool = False,
        step: object = "",
        taken: int | None = None,
    ) -> State:
        """The state after all elements that were taken, and which of them the step holds; written out on demand.

        Args:
            numbers: of the elements held.
            elements: the elements held, if they may be records, which need no number.
            ended: whether the input was closed.
            step: named in the error if elements come in any order and are not records, which has no state.
            taken: how many elements count as taken; by default all that were.
        """
        count = self.count
        now = (None,) if ended else (self.inner.snapshot(),) if taken in (None, count) else None
        mixed = str(step) if self._at.run.any_order else ""
        return _Holding(count if taken is None else taken, now, tuple(self._checkpoints), numbers, elements, mixed)


class InputAhead:
    """An input whose elements one thread takes, while another one delivers them and takes snapshots.

    Args:
        flow: the input, opened by `open` in the thread that takes from it.
        at: where it is opened.
        state: what `state` returned.

    Attributes:
        given: the number of elements delivered.
        input: None until `open`.
    """

    __slots__ = ("_at", "_flow", "_state", "given", "input")

    def __init__(self, flow: Flow, at: Context, state: State) -> None:
        self._flow, self._at, self._state = flow, at, state
        self.given = 0 if state is None else int_part(state, "at") + int_part(state, "skip")
        self.input: CheckpointedInput | None = None

    def open(self) -> CheckpointedInput:
        """Open the input at the state."""
        self.input = CheckpointedInput(self._flow, self._at, self._state, always=self._at.run.any_order)
        return self.input

    def items(self) -> Iterator[Element]:
        """Iterate over the elements, taking a checkpoint after one where it is due."""
        source = self.open() if self.input is None else self.input
        for element in source.items:
            if source.due():
                source.checkpoint(self.given)
            yield element

    def state(self) -> State:
        """The state after the elements that were delivered."""
        if self.input is None:
            return {"at": 0, "input": None, "skip": 0} if self._state is None else self._state
        return self.input.back(self.given)

    def close(self) -> None:
        if self.input is not None:
            close(self.input.inner)


@dataclass(frozen=True, slots=True)
class _Holding(Deferred):
    """A snapshot of an input and of the elements that a step held.

    Attributes:
        count: elements that were taken.
        now: the state of the input after them, if it is known, as a tuple of one; ``(None,)`` for a closed input.
        checkpoints: of the input.
        numbers: of the elements that were held.
        elements: see `CheckpointedInput.holding`.
        mixed: the step, if elements come in any order and so cannot be read again; else "".
    """

    count: int
    now: tuple[State] | None
    checkpoints: tuple[Point, ...]
    numbers: Sequence[int]
    elements: Sequence[Element] | None
    mixed: str

    def cost(self) -> int:
        return 1 + len(self.numbers) // 64 + (0 if self.now is None else parts(self.now))

    def json(self) -> State:
        elements: Sequence[Any] = [None] * len(self.numbers) if self.elements is None else self.elements
        entries = list(zip(elements, self.numbers, strict=True))
        others = [number for element, number in entries if element is None or not is_record(element)]
        if others and self.mixed:
            raise StateError(
                f"state_dict needs records in {self.mixed}, as some step below it gives what is ready first, got "
                "elements that no file has at an offset; use deterministic=True there, or another order of the steps"
            )
        start = min(others, default=self.count)
        if start < self.count or self.now is None:
            state = after(self.checkpoints, start)
        else:
            state = {"at": self.count, "input": self.now[0], "skip": 0}
        return {**state, "taken": self.count - start, "held": held_json(entries, start)}


def after(checkpoints: Sequence[Point], keep: int) -> State:
    """The state after the first `keep` elements, from the last checkpoint before them."""
    count, state, number = checkpoints[max(bisect_right(checkpoints, keep, key=_first) - 1, 0)]
    return {"at": count, "input": state, "skip": keep - count, "bad": Since(number)}
