"""enhance: torchvision's brightness, color, contrast and sharpness of images of 8 bits, for policies.

Each blends the image with another one, ``factor x + (1 - factor) other``: with black, with the luma, with the mean of
the luma, or (the sharpness, by one more rounding) with the smooth image. Results are truncated and saturate.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpupipe.graph.op import Array
from gpupipe.ops._shared.colour import apart, joined, luma, luma_dali

__all__ = [
    "brightened",
    "brightened_dali",
    "colored",
    "colored_dali",
    "contrasted",
    "contrasted_dali",
    "sharpened",
    "sharpened_dali",
]


def _bytes(f: Array) -> Array:
    result: Array = np.clip(f, 0, 255, out=f).astype(np.uint8)
    return result


def _bytes_dali(d: Any, f: Any) -> Any:
    return d.fn.cast(d.math.floor(f), dtype=d.dtype(np.uint8))  # the cast saturates


def _real(d: Any, x: Any) -> Any:
    return d.fn.cast(x, dtype=d.dtype(np.float32))


def brightened(x: Array, factor: Any) -> Array:
    f = x.astype(np.float32)
    f *= np.float32(factor)
    return _bytes(f)


def brightened_dali(d: Any, x: Any, factor: Any) -> Any:
    return _bytes_dali(d, x * factor)


def colored(x: Array, factor: Any) -> Array:
    f = apart(x)
    gray = luma(f)
    np.floor(gray, out=gray)
    gray *= np.float32(1) - np.float32(factor)
    f *= np.float32(factor)
    f += gray
    return joined(np.clip(f, 0, 255, out=f), "uint8")


def colored_dali(d: Any, x: Any, factor: Any) -> Any:
    f = _real(d, x)
    return _bytes_dali(d, f * factor + d.math.floor(luma_dali(f)) * (1.0 - factor))


def contrasted(x: Array, factor: Any) -> Array:
    f = x.astype(np.float32)
    mean = np.floor(luma(f)).mean(dtype=np.float64).astype(np.float32)
    f *= np.float32(factor)
    f += mean * (np.float32(1) - np.float32(factor))
    return _bytes(f)


def contrasted_dali(d: Any, x: Any, factor: Any, size: Any) -> Any:
    """`contrasted` as DALI nodes; `size` is the height and width, on the device of the image."""
    gray = _bytes_dali(d, luma_dali(_real(d, x)))
    real = d.dtype(np.float64)
    area = d.fn.cast(size[0], dtype=real) * d.fn.cast(size[1], dtype=real)
    total = d.fn.cast(d.fn.reductions.sum(gray), dtype=real)  # of integers: exact
    mean = d.fn.cast(total / area, dtype=d.dtype(np.float32))
    return _bytes_dali(d, x * factor + mean * (1.0 - factor))


def sharpened(x: Array, weight: Any) -> Array:
    """``x + weight (smooth - x)`` inside the outermost ring of pixels, for images of 3 pixels and more on a side."""
    wide = x.astype(np.uint16)
    columns = wide[:-2] + wide[1:-1] + wide[2:]
    total = columns[:, :-2] + columns[:, 1:-1] + columns[:, 2:]
    inside = wide[1:-1, 1:-1]
    total += inside * np.uint16(4)
    smooth = total.astype(np.float32)
    smooth += np.float32(6.5)
    smooth *= np.float32(1 / 13)
    np.floor(smooth, out=smooth)  # no thirteenth lies halfway
    smooth -= inside
    smooth *= np.float32(weight)
    smooth += inside
    out = x.copy()
    out[1:-1, 1:-1] = np.clip(smooth, 0, 255, out=smooth)
    return out


def sharpened_dali(d: Any, x: Any, weight: Any, kernel: Any) -> Any:
    """`sharpened` as DALI nodes; `kernel` is 3x3, on the device of the image."""
    f = d.fn.reshape(_real(d, x), layout="HWC")
    size = d.fn.slice(x.shape(dtype=d.dtype(np.int32)), start=[0], shape=[2], axes=[0])
    smooth = d.math.floor((d.fn.filter(f, kernel) + 6.5) * (1 / 13))
    inside = d.fn.slice((smooth - f) * weight, start=[1, 1], shape=size - 2, axes=[0, 1])
    ring = {"out_of_bounds_policy": "pad", "fill_values": 0}
    return _bytes_dali(d, f + d.fn.slice(inside, start=[-1, -1], shape=size, axes=[0, 1], **ring))
