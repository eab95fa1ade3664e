"""words: the random words that a step draws in one pass, resumable at any word."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..random import BatchRng, hash64, mix64
from .run import Context
from .state.snapshot import State, int_part

__all__ = ["BLOCK", "WordStream"]

BLOCK = 1024
"""Words of one block. The key of a block is made of the key of the pass and the block's number."""


_AT_ONCE = 128
"""Words that are returned at a time; the caller may take a checkpoint before it asks for more."""


_BLOCKS = 16
"""Blocks drawn at a time, after the first one: 16 together cost a third of 16 one by one."""


class WordStream:
    """32-bit words of one pass, drawn in blocks.

    Attributes:
        left: the next words, the first one last.

    Args:
        at: the context of the pass.
        seed: of the step, mixed with the chain's; None takes the chain's.
        rerandomize: whether the words change with epoch and pass.
        site: the kind of step, so that two steps draw different words.
        first: the number of the first block.
    """

    __slots__ = ("_at", "_epoch", "_key", "_seed", "_site", "_words", "left")

    def __init__(self, at: Context, seed: int | None, rerandomize: bool, site: str, first: int = 0) -> None:
        self._seed, self._epoch, self._key = at.draws(seed, rerandomize)
        self._site = hash64(site)
        self._at = first
        self._words: list[int] = []
        self.left: list[int] = []

    def snapshot(self) -> State:
        """The number of blocks drawn, and how many of their words are left."""
        return {"blocks": self._at, "left": len(self._words) + len(self.left)}

    def resume(self, state: State) -> None:
        """Continue from a snapshot."""
        blocks, left = int_part(state, "blocks"), int_part(state, "left")
        if blocks:
            self._at = max(blocks - _BLOCKS, 0) if blocks > 1 else 0
            self._words = self.draw()[::-1].tolist()[:left]

    def uniform(self) -> float:
        """A number in [0, 1)."""
        return (self.left or self.more()).pop() / 2.0**32

    def more(self) -> list[int]:
        """The next words, when `left` is empty: at most `_AT_ONCE`, so that the caller takes checkpoints in between."""
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
