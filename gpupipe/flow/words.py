"""words: the random words that a step draws in one pass, with a place to go on from."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..random import BatchRng, hash64, mix64
from .run import Context
from .state.snapshot import State, int_part

__all__ = ["BLOCK", "WordStream"]

BLOCK = 1024
"""Words of one block: its key is that of the pass and its number."""


_AT_ONCE = 128
"""Words that are handed out at once; between two of them a place in the input may be marked."""


_BLOCKS = 16
"""Blocks drawn at once, from the second time on: 16 together cost a third of 16 one by one."""


class WordStream:
    """32-bit words of one pass, drawn in blocks.

    Attributes:
        left: the next words, the first one last.

    Args:
        at: the context of the pass.
        seed: of the step, mixed with the chain's; None takes the chain's.
        anew: whether epoch and pass change them.
        site: tells the words of this step from those of another.
        first: the number of the first block.
    """

    __slots__ = ("_at", "_epoch", "_key", "_seed", "_site", "_words", "left")

    def __init__(self, at: Context, seed: int | None, anew: bool, site: str, first: int = 0) -> None:
        self._seed, self._epoch, self._key = at.draws(seed, anew)
        self._site = hash64(site)
        self._at = first
        self._words: list[int] = []
        self.left: list[int] = []

    def snapshot(self) -> State:
        """How many blocks were drawn, and how many words of the last ones are left."""
        return {"blocks": self._at, "left": len(self._words) + len(self.left)}

    def resume(self, state: State) -> None:
        """Go on after that many words."""
        blocks, left = int_part(state, "blocks"), int_part(state, "left")
        if blocks:
            self._at = max(blocks - _BLOCKS, 0) if blocks > 1 else 0
            self._words = self.draw()[::-1].tolist()[:left]

    def uniform(self) -> float:
        """A number in [0, 1)."""
        return (self.left or self.more()).pop() / 2.0**32

    def more(self) -> list[int]:
        """The next words, when none are left: some of those that were drawn, so that somebody comes by now and then."""
        if not self._words:
            self._words = self.draw()[::-1].tolist()
        self.left = self._words[-_AT_ONCE:]
        del self._words[-_AT_ONCE:]
        return self.left

    def draw(self) -> Any:
        """Draw the next blocks: uint64[N * 1024]."""
        blocks = range(self._at, self._at + (_BLOCKS if self._at else 1))
        keys = np.array([mix64(self._key, block) for block in blocks], np.uint64)
        self._at = blocks.stop
        return BatchRng(self._seed, self._epoch, keys, self._site).words(BLOCK).ravel()
