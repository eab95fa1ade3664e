"""random: the one law of randomness. Every number is a pure function of (seed, epoch, identity, site, draw).

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) with

    key     = (seed, epoch)
    counter = (element key: 2 words, site, draw)

so a value depends neither on batch size, threads, order of arrival, shard layout nor device. One vectorised call
draws for a whole batch. New draws are appended, never re-ordered; changing any of this requires a new `LAW`.

Keys come from the place in the chain where a dataset is opened (`place_key`): its outer element, which input of a
concatenation or mixture it is, which pass of a repeat, and which input of a zip. A host step with a seed of its own
draws without the last: inputs of a zip that shuffle with equal seeds shuffle alike. Random ops, with or without a seed,
draw by the identity of the element, which includes the input of the zip.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "LAW",
    "REDRAWN",
    "ROOT",
    "BatchRng",
    "hash64",
    "mix64",
    "mix64_array",
    "one_word",
    "pass_number",
    "philox",
    "philox_key",
    "place_key",
    "step_seed",
]

LAW = 2
"""Version of the law; states and the names of cache files depend on it.

What a file is called is no part of it: a state lists the names that keys were made of, and is refused over others.
"""

REDRAWN = 3
"""The same, of a chain in which `pick` draws anew for a place that comes again."""

_MASK = (1 << 64) - 1
_LOW = 0xFFFF_FFFF
_M0, _M1 = 0xD251_1F53, 0xCD9E_8D57
_W0, _W1 = 0x9E37_79B9, 0xBB67_AE85

Array = npt.NDArray[Any]

_A0, _A1, _ALOW, _A32 = (np.array(number, np.uint64) for number in (_M0, _M1, _LOW, 32))

_HELD, _CACHED = 500, 1 << 14
"""Counters at a time. NumPy gives the GIL away for arrays of more than 500 numbers, at each of a hundred operations,
and gets it back after up to 5 ms if other threads run Python. So up to four parts keep it, for twice the CPU time; of
more, each is as large as a CPU's second cache."""


def hash64(text: str) -> int:
    """A 64-bit hash of a name, equal on every machine and in every process (BLAKE2b)."""
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=8).digest(), "little")


def mix64(a: int, b: int) -> int:
    """Mix two 64-bit numbers into one (the finaliser of SplitMix64 over a golden-ratio combination)."""
    x = (a * 0x9E37_79B9_7F4A_7C15 + b + 0x632B_E59B_D9B4_E019) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK
    return x ^ (x >> 31)


def mix64_array(a: Array, b: Array) -> Array:
    """`mix64` of two uint64 arrays."""
    with np.errstate(over="ignore"):
        x = a * np.uint64(0x9E37_79B9_7F4A_7C15) + b + np.uint64(0x632B_E59B_D9B4_E019)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
        mixed: Array = x ^ (x >> np.uint64(31))
        return mixed


ROOT = hash64("gpupipe identity 1")
"""Key of the context in which a chain is opened."""

_BRANCH, _PASS = hash64("branch"), hash64("pass")


def place_key(outer: int, branch: int = 0, passes: int = 0, zipped: int = 0) -> int:
    """The key of a place in a chain: that of the outer element if all numbers are 0.

    Args:
        outer: key of the outer element of `flat_map` and `interleave`; `ROOT` if there is none.
        branch: number of the input of a concatenation or mixture, counted through nested ones.
        passes: number of the pass, see `pass_number`.
        zipped: inputs of zips, mixed; 0 for first inputs, and where a seed replaces them.
    """
    key = outer
    if branch:
        key = mix64(mix64(key, _BRANCH), branch)
    if passes:
        key = mix64(mix64(key, _PASS), passes)
    return mix64(key, zipped) if zipped else key


def pass_number(before: int, index: int, count: int) -> int:
    """The number of a pass, counted through the repeats around it: those of ``repeat(2).repeat(3)`` are 0 to 5.

    Args:
        before: number of the pass of the repeats around this one.
        index: of the pass of this one.
        count: passes of this one, negative for endless; then `before` is mixed in.
    """
    if count < 0:
        return mix64(before, index) if before else index
    return before * count + index


def step_seed(chain: int, own: int | None) -> int:
    """The seed of a step: the chain's, mixed with its own (64 bits are used) where it has one."""
    return chain if own is None else mix64(chain, own & _MASK)


def philox_key(seed: int, epoch: int) -> tuple[int, int]:
    """The two words of a key, each folded from the 64 bits of a number."""
    return (seed ^ (seed >> 32) * 0x85EB_CA6B) & _LOW, (epoch ^ (epoch >> 32) * 0xC2B2_AE35) & _LOW


def philox(counter: Array, key: tuple[int, int]) -> Array:
    """Philox4x32-10.

    Args:
        counter: uint64[N, 4], each value below 2**32.
        key: two words below 2**32.

    Returns:
        uint64[N, 4], each value below 2**32.
    """
    out = np.empty((len(counter), 4), np.uint64)
    step = _HELD if len(counter) <= 4 * _HELD else _CACHED
    for start in range(0, len(counter), step):
        part = slice(start, start + step)
        out[part].T[:] = _rounds_of_arrays(counter[part].T, key)
    return out


def _rounds_of_arrays(counter: Array, key: tuple[int, int]) -> tuple[Array, Array, Array, Array]:
    """`_rounds` of uint64[4, N], in two thirds of its operations and without new arrays."""
    c0, c1, c2, c3 = (np.array(words) for words in counter)  # copies one after another in memory
    a, b = np.empty_like(c0), np.empty_like(c0)
    multiply, take, xor, shift = np.multiply, np.bitwise_and, np.bitwise_xor, np.right_shift
    k0, k1 = key
    for _ in range(10):
        multiply(c0, _A0, a)
        multiply(c2, _A1, b)
        xor(shift(b, _A32, c0), c1, c0)
        xor(c0, np.uint64(k0), c0)
        xor(shift(a, _A32, c2), c3, c2)
        xor(c2, np.uint64(k1), c2)
        take(b, _ALOW, c1)
        take(a, _ALOW, c3)
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return c0, c1, c2, c3


def _rounds(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """The rounds of Philox4x32-10 over four words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        a, b = c0 * _M0, c2 * _M1
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & _LOW, (a >> 32) ^ c3 ^ k1, a & _LOW
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return c0, c1, c2, c3


def one_word(key: tuple[int, int], element: int, site: int) -> int:
    """The first word that a `BatchRng` draws for one element, without arrays of one.

    Args:
        key: see `philox_key`.
        element: its key.
        site: see `BatchRng`.
    """
    return _rounds((element & _LOW, element >> 32, site & _LOW, 0), key)[0]


class BatchRng:
    """Random numbers for the elements of one batch at one site of the chain.

    Args:
        seed: of the chain (64 bits; folded into one word with the epoch's).
        epoch: number of the iterator.
        keys: uint64[B], the keys of the elements.
        site: which random call of the chain this is, hashed.
    """

    __slots__ = ("_block", "_counter", "_key", "_keys", "_site", "size")

    def __init__(self, seed: int, epoch: int, keys: Array, site: int = 0) -> None:
        self._keys, self._site = np.asarray(keys, np.uint64), site
        self.size = len(self._keys)
        self._counter: Array | None = None  # made by the first draw, which geometry without randomness never needs
        self._key = philox_key(seed, epoch)
        self._block = 0

    def words(self, count: int) -> Array:
        """Draw the next `count` 32-bit words of every element: uint64[B, count]."""
        if self._counter is None:
            self._counter = np.empty((self.size, 3), np.uint64)
            self._counter[:, 0] = self._keys & _LOW
            self._counter[:, 1] = self._keys >> 32
            self._counter[:, 2] = self._site & _LOW
        blocks = -(-count // 4)
        counter = np.empty((self.size, blocks, 4), np.uint64)
        counter[:, :, :3] = self._counter[:, None, :]
        counter[:, :, 3] = np.arange(self._block, self._block + blocks, dtype=np.uint64)
        self._block += blocks
        return philox(counter.reshape(-1, 4), self._key).reshape(self.size, blocks * 4)[:, :count]

    def uniform(self, count: int | None = None) -> Array:
        """Draw numbers in [0, 1) with 32 random bits: float64[B, count], or float64[B] without a count."""
        drawn = self.words(1 if count is None else count).astype(np.float64) / 2.0**32
        return drawn[:, 0] if count is None else drawn

    def integers(self, low: Array | int, high: Array | int) -> Array:
        """Draw one integer in [low, high) per element: int64[B]; the bounds may differ between elements."""
        low, high = np.asarray(low, np.int64), np.asarray(high, np.int64)
        drawn: Array = low + np.floor(self.uniform() * (high - low)).astype(np.int64)
        return drawn
