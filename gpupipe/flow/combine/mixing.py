"""mixing: sample_from_datasets and choose_from_datasets: each element comes from one of several inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from ...classes import dataclass
from ...errors import DataError, FunctionError
from ...spec import spec_of
from ..bad.found import as_before, bad_element
from ..element import Element, is_element, locate
from ..run import Context, Flow, Run
from ..stall import Watch, Where
from ..state.snapshot import State, part
from ..step import Running, close
from ..words import WordStream

__all__ = ["ChooseFlow", "SampleFlow"]


@dataclass(frozen=True, slots=True)
class SampleFlow:
    """Draws the next input by weight.

    Attributes:
        inputs: the datasets.
        branches: per input the number of its first branch, then that of `by`.
        branch: number of the node, which tells its draws from those of others without a seed.
        stop: end when an empty input is drawn; otherwise it is not drawn again.
        weights: one per input, > 0; None where `by` gives them.
        by: a flow of weights, one element for each draw.
        seed: of the node.
        rerandomize: whether draws change with epoch and pass.
        where: the step, for the log.
    """

    inputs: tuple[Flow, ...]
    branches: tuple[int, ...]
    branch: int
    stop: bool
    weights: tuple[float, ...] | None
    by: Flow | None
    seed: int | None
    rerandomize: bool
    where: Where

    def open(self, at: Context, state: State = None) -> Running:
        # The number of the node depends on its inputs; with a seed, equal nodes in both inputs of a zip draw alike.
        which = f"#{self.branch}" if self.seed is None else f"@{at.mixtures}"
        numbers = WordStream(at, self.seed, self.rerandomize, f"sample_from_datasets{which}")
        picks = part(state, "picks")
        if picks is not None:
            numbers.resume(part(picks, "numbers"))
        if self.by is None:
            assert self.weights is not None
            return _Mixed(self, at, _ByWeight(self.weights, numbers), state)
        by = as_before(at, self, self.by.open(at.in_mixture(self.branches[-1]), part(picks)))
        pick = partial(drawn, count=len(self.inputs), numbers=numbers)
        return _Mixed(self, at, _ByElement(pick, by, self, at.run, numbers), state)


@dataclass(frozen=True, slots=True)
class ChooseFlow:
    """Takes the next input from a flow of numbers.

    Attributes:
        inputs: the datasets.
        branches: per input the number of its first branch, then that of `choice`.
        stop: end when an empty input is chosen; otherwise the choice is skipped.
        choice: gives the numbers.
        where: the step, for the log.
    """

    inputs: tuple[Flow, ...]
    branches: tuple[int, ...]
    stop: bool
    choice: Flow
    where: Where

    def open(self, at: Context, state: State = None) -> Running:
        choice = self.choice.open(at.in_mixture(self.branches[-1]), part(part(state, "picks")))
        choice = as_before(at, self, choice)
        return _Mixed(self, at, _ByElement(partial(chosen, count=len(self.inputs)), choice, self, at.run), state)


class _Picks(ABC):
    """Picks the next input.

    Args:
        numbers: random numbers to draw with, if it draws.
        inner: the running flow whose elements pick, if there is one.
    """

    def __init__(self, numbers: WordStream | None, inner: Running | None) -> None:
        self._numbers = numbers
        self._inner = inner

    @abstractmethod
    def next(self) -> int | Element | None:
        """Return the index of the next input, a hole or error where it is not known, or None at the end."""

    def ended(self, index: int) -> None:
        """Note that an input is empty. It may be picked again: the mixture skips it."""
        return

    def snapshot(self) -> State:
        """The states of the flow of picks and of the random numbers."""
        source = {} if self._inner is None else {"source": self._inner.snapshot()}
        return source if self._numbers is None else {**source, "numbers": self._numbers.snapshot()}

    def close(self) -> None:
        """Close the flow of picks."""
        close(self._inner)


class _ByWeight(_Picks):
    """Draws by constant weights among the inputs that are not empty."""

    def __init__(self, weights: Sequence[float], numbers: WordStream) -> None:
        super().__init__(numbers, None)
        self._draw = numbers.uniform
        self._weights = list(weights)
        self._sums = list(accumulate(self._weights))

    def next(self) -> int | Element | None:
        total = self._sums[-1]
        if total <= 0:
            return None
        # Rounding may reach the sum: then it is the last input with a weight.
        return min(bisect_right(self._sums, self._draw() * total), bisect_left(self._sums, total))

    def ended(self, index: int) -> None:
        """Drop the weight of an empty input: drawing until another one comes is drawing among the others."""
        self._weights[index] = 0.0
        self._sums = list(accumulate(self._weights))


class _ByElement(_Picks):
    """Picks an input by each element of a flow.

    Args:
        pick: returns the index of the input that the columns of an element pick, or raises DataError.
        inner: see `_Picks`.
        step: the flow.
        run: the run.
        numbers: see `_Picks`.
    """

    def __init__(
        self,
        pick: Callable[[tuple[Any, ...]], int],
        inner: Running,
        step: Flow,
        run: Run,
        numbers: WordStream | None = None,
    ) -> None:
        super().__init__(numbers, inner)
        self._step, self._run = step, run
        self._pick = pick
        self._items = iter(inner)

    def next(self) -> int | Element | None:
        element = next(self._items, None)
        if element is None:
            return None
        if type(element[0]) is not tuple:
            self._run.need(element, "the choice of an input")
            return element
        try:
            return self._pick(element[0])
        except DataError as error:
            return bad_element(locate(error, element[1], element[2]), element[1], element[2], self._step)


def drawn(columns: tuple[Any, ...], count: int, numbers: WordStream) -> int:
    """Draw an input by the weights in some columns: a vector, or a tuple of numbers."""
    weights = np.asarray(columns[0] if len(columns) == 1 else columns)
    if weights.dtype.kind not in "iuf" or weights.shape != (count,):
        raise FunctionError(f"needs {count} weights, got {spec_of(weights)}", stage="sample_from_datasets")
    weights = np.maximum(weights.astype(np.float64), 0)  # a weight below 0 counts as 0: never drawn
    if not np.isfinite(weights).all() or not weights.sum() > 0:
        raise FunctionError(
            f"needs weights that are finite and not all 0, got {weights.tolist()}", stage="sample_from_datasets"
        )
    sums = np.cumsum(weights)
    # Rounding may reach the sum here, too.
    return min(int(np.searchsorted(sums, numbers.uniform() * sums[-1], "right")), int(np.argmax(sums)))


def chosen(columns: tuple[Any, ...], count: int) -> int:
    """Return the choice in some columns: the index of an input."""
    choice = columns[0]
    kind = getattr(choice, "dtype", None)
    if len(columns) != 1 or kind is None or kind.kind not in "iu" or choice.shape != ():
        got = ", ".join(str(spec_of(column)) for column in columns)
        raise FunctionError(f"needs choices that are one int64, got {got}", stage="choose_from_datasets")
    if not 0 <= choice < count:
        raise FunctionError(f"needs choices from 0 to {count - 1}, got {choice}", stage="choose_from_datasets")
    return int(choice)


class _Mixed(Running):
    def __init__(self, flow: SampleFlow | ChooseFlow, at: Context, picks: _Picks, state: State) -> None:
        self._picks = picks
        self._stop = flow.stop
        self._stopped = at.run.stopped
        self._inputs: list[Running | None] = []
        self._picked: int | None = None  # kept after an error: it does not use up the pick
        self._ended = False
        parts = [[None]] * len(flow.inputs) if state is None else state["inputs"]
        for j, (source, saved) in enumerate(zip(flow.inputs, parts, strict=True)):
            if saved is None:  # this input was empty
                self._inputs.append(None)
                picks.ended(j)
            else:
                self._inputs.append(source.open(at.in_mixture(flow.branches[j]), saved[0]))
        self._left = sum(inner is not None for inner in self._inputs)
        if state is not None:
            self._picked = state["picked"]
            if state["ended"]:
                self.close()
        self._watch = Watch(flow.where)
        self._skipped = 0

    def __next__(self) -> Element:
        while self._left and not self._stopped.on:
            index = self._picks.next() if self._picked is None else self._picked
            if index is None:
                break
            if not isinstance(index, int):
                return index
            self._picked = None
            inner = self._inputs[index]
            element: Element | None = None if inner is None else next(inner, None)
            if element is not None:
                self._skipped = 0
                if not is_element(element):
                    self._picked = index
                return element
            if inner is not None:
                close(inner)
                self._inputs[index] = None
                self._left -= 1
                self._picks.ended(index)
            if self._stop:
                break
            self._skipped += 1
            self._watch.nothing(self._skipped)
        self.close()
        raise StopIteration

    def snapshot(self) -> State:
        """The states of the inputs that are not empty and of the picks, and a pick that is not used up."""
        inputs = [None if inner is None else [inner.snapshot()] for inner in self._inputs]
        return {"inputs": inputs, "picks": self._picks.snapshot(), "picked": self._picked, "ended": self._ended}

    def close(self) -> None:
        """Close every input and the flow of picks."""
        self._left = 0
        self._ended = True
        for inner in self._inputs:
            close(inner)
        self._inputs = [None] * len(self._inputs)
        self._picks.close()
