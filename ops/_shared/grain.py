"""grain: random numbers for every pixel of an image, from few that the host draws: one for each line and each column.

A pixel's number is the product of its line's and its column's, odd numbers of 32 bits, modulo 2**32; for numbers of
each channel times the channel's. Of two pixels the products are independent wherever they lie, so the noise is white;
only four pixels at the corners of a rectangle depend on one another, in a way that the upper bits do not show. Integers
are exact, so every executor has the same noise. 224 + 224 drawn words make up for 150,000.
"""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np

from gpupipe.graph.op import Array
from gpupipe.random import BatchRng

__all__ = ["MOST_CHANNELS", "grain", "grain_dali", "grain_keys", "normals"]

MOST_CHANNELS = 4
"""Channels that have numbers of their own."""

_FIRST = MOST_CHANNELS // 2
"""Pairs of numbers before those of the lines and columns."""


def grain_keys(rng: BatchRng, hw: Array) -> Array:
    """The drawn numbers of each image: uint32[B,n,2]: of the channels, then pairs of a line and a column."""
    count = _FIRST + int(hw.max(initial=0))
    return (rng.words(2 * count).astype(np.uint32) | np.uint32(1)).reshape(len(hw), count, 2)


def grain(keys: Array, shape: tuple[int, ...], channels: bool) -> Array:
    """A number below 2**32 for each pixel, uint32[H,W,1], or for each of its channels, uint32[H,W,C]."""
    lines, columns = keys[_FIRST : _FIRST + shape[0], 0, None, None], keys[_FIRST : _FIRST + shape[1], 1, None]
    if channels:
        columns = columns * keys[:_FIRST].reshape(-1)[: shape[2]]
    result: Array = lines * columns[None]
    return result


def grain_dali(d: Any, keys: Any, x: Any, channels: bool | int) -> Any:
    """`grain` as DALI nodes, for the size of the image `x`, and for its channels or as many as are given."""
    if d.device == "gpu":
        keys = keys.gpu()
    shape = x.shape(dtype=d.dtype(np.int32))

    def cut(start: int, count: Any, axis: int) -> Any:
        numbers = d.fn.slice(keys, start, count, axes=[0])
        return d.fn.slice(numbers, axis, 1, axes=[1])

    lines = d.fn.reshape(cut(_FIRST, shape[0], 0), shape=[-1, 1, 1])
    columns = d.fn.reshape(cut(_FIRST, shape[1], 1), shape=[1, -1, 1])
    if channels:
        own = d.fn.reshape(d.fn.slice(keys, 0, _FIRST, axes=[0]), shape=[1, 1, MOST_CHANNELS])
        columns = columns * d.fn.slice(own, 0, shape[2] if channels is True else channels, axes=[2])
    return lines * columns


@lru_cache(1)
def normals() -> Array:
    """The middles of 65,536 equally likely ranges of the standard normal distribution: float32, up to 4.3."""
    half = [NormalDist().inv_cdf((k + 0.5) / 65536) for k in range(32768)]
    table = np.array(half, np.float32)
    return np.concatenate([table, -table[::-1]])
