"""numbers: counter and random: sources that compute their elements."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import numpy as np

from ...classes import dataclass
from ..run import Context
from ..state.snapshot import Numbered, State, int_part
from ..step import Running
from ..words import BLOCK, WordStream

__all__ = ["CounterFlow", "RandomFlow"]


@dataclass(frozen=True, slots=True)
class CounterFlow:
    """Numbers that each are the previous one plus a step, in one dtype: integers wrap around, floats round."""

    start: Any
    step: Any
    dtype: np.dtype[Any]

    def open(self, at: Context, state: State = None) -> Running:
        done = 0 if state is None else int_part(state, "n")
        # Floats are summed and rounded from the start, so the blocks before the state are computed again.
        blocks = islice(self._blocks(), done // BLOCK, None)
        numbers = islice(zip(chain.from_iterable(blocks)), done % BLOCK, None)
        return Numbered(numbers, at.stream("counter", "counter"), done)

    def _blocks(self) -> Iterator[Any]:
        step = np.full(1, self.step, self.dtype)
        following = np.full(1, self.start, self.dtype)
        while True:
            block = np.repeat(step, BLOCK)
            block[0] = following[0]
            with np.errstate(over="ignore", invalid="ignore"):
                block = np.add.accumulate(block, dtype=self.dtype)
                following = block[-1:] + step
            yield block


@dataclass(frozen=True, slots=True)
class RandomFlow:
    """Random integers in [0, 2**32), int64."""

    seed: int | None
    rerandomize: bool

    def open(self, at: Context, state: State = None) -> Running:
        done = 0 if state is None else int_part(state, "n")
        words = WordStream(at, self.seed, self.rerandomize, "random", done // BLOCK)
        numbers = islice(zip(chain.from_iterable(self._blocks(words))), done % BLOCK, None)
        return Numbered(numbers, at.stream("random", "random"), done)

    def _blocks(self, words: WordStream) -> Iterator[Any]:
        while True:
            yield words.draw().astype(np.int64)
