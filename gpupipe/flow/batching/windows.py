"""windows: consecutive elements gathered into datasets, and the flow of such a dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...classes import dataclass
from ...graph.values import digest_of
from ...plan.node import ElementType, Node
from ...plan.windows import NestedElements
from ...random import mix64
from ...spec import LEAF
from ..element import Element, Hole, identity_of, is_element
from ..rekey import Rekey
from ..run import Context, Flow
from ..state.snapshot import State, int_part, replayed
from ..step import Running
from .gather import Gathering, gathered

__all__ = ["Datasets", "NestedElementsFlow", "WindowFlow"]


@dataclass(frozen=True, slots=True)
class Datasets:
    """Makes datasets of gathered elements.

    Attributes:
        type: of the elements.
        make: makes a dataset of a plan.
        fingerprint: of the chain that gathers them.
        line: ``file:line`` where the user wrote the step.
    """

    type: ElementType
    make: Callable[[Node], Any]
    fingerprint: bytes
    line: str

    def leaves(self, rows: Sequence[Element], at: Context, serial: int) -> tuple[Any, ...]:
        """Make one dataset for each leaf of the elements."""
        identities = [row[1:] for row in rows]
        out = []
        for i, column in enumerate(zip(*(row[0] for row in rows), strict=True)):
            elements = tuple([((leaf,), *identity) for leaf, identity in zip(column, identities, strict=True)])
            kind = ElementType(LEAF, self.type.specs[i : i + 1], self.type.batched)
            out.append(self._dataset(elements, kind, at, serial, i))
        return tuple(out)

    def whole(self, rows: Sequence[Element], at: Context, serial: int) -> Any:
        """Make one dataset of the whole elements."""
        return self._dataset(tuple(rows), self.type, at, serial, -1)

    def _dataset(self, elements: tuple[Element, ...], kind: ElementType, at: Context, serial: int, leaf: int) -> Any:
        _, stream, position = elements[0]
        origin = digest_of(self.fingerprint, at.run.settings.seed, at.epoch, at.key, serial, leaf)
        return self.make(NestedElements(elements, kind, mix64(stream.key, position), origin, line=self.line))


@dataclass(frozen=True, slots=True)
class NestedElementsFlow:
    """Gathered elements, which can be iterated over many times. Each pass gives copies, so users cannot change them.

    Attributes:
        elements: with their identities.
        base: the context key under which the identities stay; also where the dataset is iterated over on its own.
    """

    elements: tuple[Element, ...]
    base: int

    def open(self, at: Context, state: State = None) -> Running:
        return replayed(lambda: map(Rekey(at, self.base), self.elements), at, state)


@dataclass(frozen=True, slots=True)
class WindowFlow:
    """Datasets of `size` elements, `stride` apart; each starts `shift` elements after the one before.

    Attributes:
        aligned: something is zipped to these windows: one with a bad element becomes a hole.
    """

    source: Flow
    size: int
    shift: int
    stride: int
    drop: bool
    datasets: Datasets
    aligned: bool = False

    def open(self, at: Context, state: State = None) -> Running:
        return gathered(lambda start: _Windows(self, at, start), at, state)

    def window(self, rows: list[Element], at: Context, serial: int) -> Element:
        """Make a window of some elements; a hole if one of them is."""
        bad = next((row[0] for row in rows if type(row[0]) is Hole), None)
        return (self.datasets.leaves(rows, at, serial) if bad is None else bad, *identity_of(rows[0]))


class _Windows(Gathering):
    def __init__(self, flow: WindowFlow, at: Context, state: State) -> None:
        self._flow = flow
        # Input index of held[0] and of the next window, and how many windows there were.
        names = ("first", "start", "windows")
        self._first, self._start, self._number = (0 if state is None else int_part(state, name) for name in names)
        super().__init__(flow.source, at, state, flow.aligned)

    def snapshot(self) -> State:
        """The state of a `Gathering`, and which window is next."""
        window = {"first": self._first, "start": self._start, "windows": self._number}
        return {**super().snapshot(), **window}

    def run(self, at: Context) -> Iterator[Element]:
        flow, held = self._flow, self.held
        span = (flow.size - 1) * flow.stride + 1
        more = True
        while more or held:
            while more and self._first + len(held) < self._start + span:
                self.checkpoint()
                element = None if at.run.stopped.on else next(self.elements, None)
                if element is None:
                    more = False
                elif not is_element(element):
                    yield element
                elif self._first < self._start and not held:  # between two windows
                    self._first += 1
                else:
                    held.append((element, self.input.count - 1))
            start = self._start - self._first
            rows = [element for element, _ in held[start : start + span : flow.stride]]
            if not rows or (flow.drop and self._first + len(held) < self._start + span) or at.run.stopped.on:
                return
            window = flow.window(rows, at, self._number)
            self._number += 1
            self._start += flow.shift
            gone = min(flow.shift, len(held))
            del held[:gone]
            self._first += gone
            yield window
