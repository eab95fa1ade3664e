"""permutation: a random order of n indices that is computed, not stored.

Up to 4096 indices are sorted by random numbers: every order is equally likely. More are mapped by a keyed bijection, a
Feistel network (Luby and Rackoff, "How to construct pseudorandom permutations from pseudorandom functions", 1988) over
pairs (l, r) with l < a, r < b and a * b just above n, with addition modulo a and b in index of XOR. A value >= n is
mapped again until it is below (cycle walking: Black and Rogaway, "Ciphers with arbitrary finite domains", 2002); few
are, since a * b - n < 2 sqrt(n) + 1.
"""

from __future__ import annotations

import math

import numpy as np

from ...graph.op import Array
from ...random import hash64, mix64, mix64_array
from .shuffle import shuffled_order

__all__ = ["Permutation"]

ROUNDS = 8
"""Four give a pseudorandom permutation in theory; the rest is margin, at 10 ns per index and round."""


SMALL = 4096


class Permutation:
    """A bijection of range(n), decided by a 64-bit key.

    Args:
        n: number of indices, >= 0.
        key: decides the order.
    """

    def __init__(self, n: int, key: int) -> None:
        self.n = n
        self._table = shuffled_order(n, key & 0xFFFF_FFFF, key >> 32, key) if n <= SMALL else None
        rows = math.isqrt(max(n - 1, 0)) + 1
        self._a, self._b = np.uint64(rows), np.uint64(-(-n // rows))
        key = mix64(key, hash64("permutation"))
        self._keys = [np.array([mix64(key, i)], np.uint64) for i in range(ROUNDS)]

    def __call__(self, indices: Array) -> Array:
        """Map indices in the new order to indices in the input: int64[N] -> int64[N]."""
        if self._table is not None:
            table: Array = self._table[indices]
            return table
        x = self._once(indices.astype(np.uint64))
        n = np.uint64(self.n)
        while len(outside := np.flatnonzero(x >= n)):
            x[outside] = self._once(x[outside])
        return x.astype(np.int64)

    def _once(self, x: Array) -> Array:
        a, b = self._a, self._b
        left, right = np.divmod(x, b)
        for i in range(0, ROUNDS, 2):
            left = (left + mix64_array(self._keys[i], right) % a) % a
            right = (right + mix64_array(self._keys[i + 1], left) % b) % b
        pairs: Array = left * b + right
        return pairs
