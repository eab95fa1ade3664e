"""words: blocks of random words, with a place to go on from."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..random import BatchRng, hash64, mix64
from .run import Context
from .state.snapshot import State, number

__all__ = ["BLOCK", "Draws", "KeyedDraws", "Numbers"]


class KeyedDraws:
    """One number per element, by its key: what `BatchRng` draws for it in a batch, without arrays of one."""

    def __init__(self, at: Context, site: str) -> None:
        seed, epoch = at.run.settings.seed, at.epoch
        self._site = hash64(site) & 0xFFFF_FFFF
        self._key = (
            (seed ^ (seed >> 32) * 0x85EB_CA6B) & 0xFFFF_FFFF,
            (epoch ^ (epoch >> 32) * 0xC2B2_AE35) & 0xFFFF_FFFF,
        )

    def uniform(self, key: int) -> float:
        """A number in [0, 1): the first word of Philox4x32-10."""
        c0, c1, c2, c3 = key & 0xFFFF_FFFF, key >> 32, self._site, 0
        k0, k1 = self._key
        for _ in range(10):
            a, b = c0 * 0xD251_1F53, c2 * 0xCD9E_8D57
            c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & 0xFFFF_FFFF, (a >> 32) ^ c3 ^ k1, a & 0xFFFF_FFFF
            k0, k1 = (k0 + 0x9E37_79B9) & 0xFFFF_FFFF, (k1 + 0xBB67_AE85) & 0xFFFF_FFFF
        return c0 / 2.0**32


BLOCK = 1024


class Numbers:
    """32-bit words of one pass, drawn in blocks.

    Args:
        at: the context of the pass.
        seed: of the node, mixed with the chain's; None takes the chain's.
        anew: whether epoch and pass change them.
        site: tells the numbers of this node from those of another.
    """

    def __init__(self, at: Context, seed: int | None, anew: bool, site: str) -> None:
        self._seed, self._epoch, self._key = at.draws(seed, anew)
        self._site = hash64(site)
        self._at = 0
        self._left: list[int] = []

    def snapshot(self) -> State:
        """How many blocks were drawn, and how many words of the last one are left."""
        return {"blocks": self._at, "left": len(self._left)}

    def resume(self, state: State) -> None:
        """Go on behind that many words."""
        blocks, left = number(state, "blocks"), number(state, "left")
        if blocks:
            self._at = blocks - 1
            self._left = self.block().tolist()[::-1][:left]

    def skip(self, blocks: int) -> None:
        """Pass over so many blocks."""
        self._at += blocks

    def block(self) -> Any:
        """The next words, uint64[1024]."""
        keys = np.full(1, mix64(self._key, self._at), np.uint64)
        self._at += 1
        return BatchRng(self._seed, self._epoch, keys, self._site).words(BLOCK)[0]

    def uniform(self) -> float:
        """A number in [0, 1)."""
        if not self._left:
            self._left = self.block().tolist()[::-1]
        return self._left.pop() / 2.0**32


_DRAWS = 1024
"""Words of one block: its key is that of the pass and its number."""


_AT_ONCE = 128
"""Words that are handed out at once; between two of them a place in the input may be marked."""


_BLOCKS = 16
"""Blocks drawn at once, from the second time on: 16 together cost a third of 16 one by one."""


class Draws:
    """Numbers for one pass of a shuffle, drawn in blocks.

    Attributes:
        left: the next 32-bit words, the first one last.
    """

    __slots__ = ("_at", "_epoch", "_key", "_seed", "_words", "left")

    def __init__(self, at: Context, seed: int | None, reshuffle: bool) -> None:
        self._seed, self._epoch, self._key = at.draws(seed, reshuffle)
        self._at = 0
        self._words: list[int] = []
        self.left: list[int] = []

    def snapshot(self) -> State:
        """How many blocks were drawn, and how many words of the last ones are left."""
        return {"blocks": self._at, "left": len(self._words) + len(self.left)}

    def resume(self, state: State) -> None:
        """Go on behind that many words."""
        blocks, left = number(state, "blocks"), number(state, "left")
        if blocks:
            self._at = max(blocks - _BLOCKS, 0) if blocks > 1 else 0
            self._words = self._drawn()[:left]

    def more(self) -> list[int]:
        """The next words, when none are left: some of those that were drawn, so that somebody comes by now and then."""
        if not self._words:
            self._words = self._drawn()
        self.left = self._words[-_AT_ONCE:]
        del self._words[-_AT_ONCE:]
        return self.left

    def _drawn(self) -> list[int]:
        blocks = range(self._at, self._at + (_BLOCKS if self._at else 1))
        keys = np.array([mix64(self._key, block) for block in blocks], np.uint64)
        words = BatchRng(self._seed, self._epoch, keys, hash64("shuffle")).words(_DRAWS)
        self._at = blocks.stop
        drawn: list[int] = words.ravel()[::-1].tolist()
        return drawn
