"""resampling: resizing in NumPy: the source pixels of each target pixel, and their weights.

With n source and m target pixels, target pixel o has its centre at c = (o + 0.5) * n / m. As in TensorFlow:

    nearest     the source pixel that holds c
    area        the mean over [o * n/m, (o + 1) * n/m)
    others      weight k((i + 0.5 - c) / s) for source pixel i; what lies outside the image is ignored, and the weights
                are divided by their sum. s = max(n/m, 1) with antialias, else 1

Kernels: bilinear a triangle, bicubic Keys with a = -0.5, lanczos3 sinc(x) * sinc(x/3). Pillow does the same with
antialias.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from gpupipe.graph.op import Array

__all__ = ["MANY", "METHODS", "SUPPORT", "resampled", "rounded", "taps"]

SUPPORT = {"bilinear": 1, "bicubic": 2, "lanczos3": 3}
"""Kernel radius in (stretched) pixels."""

METHODS = ("area", "bicubic", "bilinear", "lanczos3", "nearest")


MANY = 1 << 25
"""Samples of an image that is not copied to float32 as a whole: the pixels that are taken of it are, and are equal."""


@lru_cache(1024)
def taps(n: int, m: int, method: str, antialias: bool, part: tuple[float, float] | None = None) -> tuple[Array, Array]:
    """Source indices and weights of every target pixel of one axis: int[m,k] and float32[m,k].

    `part` is where the resized part of the axis starts and ends, in pixels; None for all of it.
    """
    begin, end = part or (0.0, n)
    scale = (end - begin) / m
    out = np.arange(m)
    if method == "area":
        low, high = begin + out * scale, begin + (out + 1) * scale
        index = np.floor(low).astype(int)[:, None] + np.arange(int(np.ceil(scale)) + 1)
        weight = np.minimum(index + 1, high[:, None]) - np.maximum(index, low[:, None])
        weight[weight < 1e-9] = 0  # a pixel that is touched only because of rounding
    else:
        stretch = max(scale, 1.0) if antialias else 1.0
        centre = begin + (out + 0.5) * scale
        radius = SUPPORT[method] * stretch
        index = np.floor(centre - radius).astype(int)[:, None] + np.arange(int(np.ceil(2 * radius)) + 1)
        weight = _kernel(method, (index + 0.5 - centre[:, None]) / stretch)
    weight[(index < 0) | (index >= n)] = 0
    weight /= weight.sum(axis=1, keepdims=True)
    first = np.argsort(weight == 0, axis=1, kind="stable")  # zeros last: a triangle reaches two pixels
    index, weight = np.take_along_axis(index, first, 1), np.take_along_axis(weight, first, 1)
    used = weight.any(axis=0)
    return np.clip(index, 0, n - 1)[:, used], weight[:, used].astype(np.float32)


def _kernel(method: str, x: Array) -> Array:
    x = np.abs(x)
    if method == "bilinear":
        weight: Array = np.maximum(1 - x, 0)
        return weight
    if method == "bicubic":
        near = (1.5 * x - 2.5) * x * x + 1
        far = ((-0.5 * x + 2.5) * x - 4) * x + 2
        return np.where(x < 1, near, np.where(x < 2, far, 0))
    return np.where(x < 3, np.sinc(x) * np.sinc(x / 3), 0)


def resampled(
    x: Array, axis: int, m: int, method: str, antialias: bool, part: tuple[float, float] | None = None
) -> Array:
    """Resize one axis of an image (0 or 1), or a `part` of it: float32. "nearest" keeps the dtype and has no part."""
    n = x.shape[axis]
    if method == "nearest":
        return np.take(x, (2 * np.arange(m) + 1) * n // (2 * m), axis) if m != n else x
    if (m == n and part is None) or x.size < MANY:
        x = x.astype(np.float32, copy=False)
    if m == n and part is None:
        return x
    index, weight = taps(n, m, method, antialias, part)
    rows, columns, channels = x.shape
    if axis == 0:
        shape, flat = (m, columns, channels), x.reshape(n, -1)
    else:  # pixels side by side: NumPy is slow where the last axis has three numbers
        shape, flat = (rows, m, channels), x.reshape(rows, -1)
        index = (index[:, None] * channels + np.arange(channels)[:, None]).reshape(m * channels, index.shape[1])
        weight = np.repeat(weight, channels, axis=0)
    out = np.take(flat, index[:, 0], axis).astype(np.float32, copy=False)
    out *= np.expand_dims(weight[:, 0], 1 - axis)
    for k in range(1, index.shape[1]):
        more = np.take(flat, index[:, k], axis).astype(np.float32, copy=False)
        more *= np.expand_dims(weight[:, k], 1 - axis)
        out += more
    return out.reshape(shape)


def rounded(x: Array, dtype: np.dtype[Any]) -> Array:
    """Float values as `dtype`: integers round to nearest and saturate."""
    if dtype.kind == "f":
        return x.astype(dtype, copy=False)
    limits = np.iinfo(dtype)
    return np.clip(np.rint(x), limits.min, limits.max).astype(dtype)
