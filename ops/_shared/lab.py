"""lab: colours of 8 bits as lightness and two chromaticities of 8 bits (CIE L*a*b*, D65), and back.

Lightness is ``L * 255 / 100``, the others are ``a + 128`` and ``b + 128``, all rounded. Every step is one of whole
numbers of some bits, as in OpenCV, whose results these are for all 2**24 colours.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from gpupipe.graph.op import Array

__all__ = ["from_lab", "to_lab"]

_XYZ = np.array([[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]])
_RGB = np.array([[3.240479, -1.53715, -0.498535], [-0.969256, 1.875991, 0.041556], [0.055648, -0.204043, 1.057311]])
_WHITE = np.array([0.950456, 1.0, 1.088754])

_BITS = 12
"""Fraction bits of the matrices, and bits of linear colours on the way back."""

_LINEAR = 255 * 8
"""White, as a linear colour on the way there."""

_ROOT = 15
"""Fraction bits of the cube roots on the way there."""

_BASE = 1 << 14
"""One, on the way back."""

_LEAST = -8145
"""The smallest root on the way back."""


def _rounded(values: Any) -> Array:
    result: Array = np.rint(values).astype(np.int32)
    return result


def _descaled(values: Array, bits: int) -> Array:
    """Divide by ``2**bits``, rounded."""
    result: Array = (values + (1 << (bits - 1))) >> bits
    return result


@lru_cache(1)
def _there() -> tuple[Array, Array, Array]:
    """The matrix to XYZ, linear colours of the 256 levels, and roots of linear colours."""
    level = np.arange(256) / 255
    linear = np.where(level <= 0.04045, level / 12.92, ((level + 0.055) / 1.055) ** 2.4)
    x = np.arange(256 * 3 // 2 * 8) / _LINEAR
    root = _rounded((1 << _ROOT) * np.where(x < 216 / 24389, x * 841 / 108 + 16 / 116, np.cbrt(x)))
    root[[49, 628]] += [-1, 1]  # 9454.5001 and 22125.499995, of which float32 rounds to the other side
    return _rounded((1 << _BITS) * _XYZ / _WHITE[:, None]), _rounded(_LINEAR * linear), root


@lru_cache(1)
def _back() -> tuple[Array, Array, Array, Array, Array]:
    """The matrix to RGB; Y and its root of the 256 lightnesses; cubes of roots; levels of linear colours."""
    lightness = np.arange(256) * 100 / 255
    dark = np.arange(256) <= 20
    y = np.where(dark, lightness * 27 / 24389, ((lightness + 16) / 116) ** 3)
    root = np.where(dark, y * 841 / 108 + 16 / 116, (lightness + 16) / 116)
    at = np.arange(_LEAST, _LEAST + _BASE * 9 // 4)
    offset = _BASE * 16 // 116 * 108 // 841
    line = np.trunc(at * 108 / 841).astype(np.int32) - offset
    cube = np.where(at <= _BASE * 6 // 29, line, at * at // _BASE * at // _BASE).astype(np.int32)
    linear = np.arange(1 << _BITS) / (1 << _BITS)
    level = np.where(linear <= 0.0031308, linear * 12.92, 1.055 * linear ** (1 / 2.4) - 0.055)
    return (
        _rounded((1 << _BITS) * _RGB * _WHITE),
        _rounded(_BASE * y),
        _rounded(_BASE * root),
        cube,
        _rounded(255 * level),
    )


def to_lab(x: Array) -> tuple[Array, Array, Array]:
    """Lightness and chromaticities of uint8[H,W,3]: uint8[H,W] each."""
    matrix, linear, roots = _there()
    red, green, blue = (np.take(linear, x[:, :, c]) for c in range(3))
    fx, fy, fz = (np.take(roots, _descaled(m[0] * red + m[1] * green + m[2] * blue, _BITS)) for m in matrix)
    middle = 128 << _ROOT
    lightness = _descaled(296 * fy - ((16 * 255 << _ROOT) + 50) // 100, _ROOT)  # 116 * 255 / 100, rounded
    a, b = _descaled(500 * (fx - fy) + middle, _ROOT), _descaled(200 * (fy - fz) + middle, _ROOT)
    first, second, third = (np.clip(plane, 0, 255).astype(np.uint8) for plane in (lightness, a, b))
    return first, second, third


def from_lab(lightness: Array, a: Array, b: Array) -> Array:
    """uint8[H,W,3] of what `to_lab` gives; colours that there are not become the nearest in each channel."""
    matrix, ys, roots, cubes, levels = _back()
    y, fy = np.take(ys, lightness), np.take(roots, lightness)
    fx = fy + ((a.astype(np.int32) * (5 * 53687) + (1 << 7)) >> 13) - 128 * _BASE // 500  # a / 500
    fz = fy - ((b.astype(np.int32) * 41943 + (1 << 4)) >> 9) + 128 * _BASE // 200 - 1  # b / 200
    x, z = np.take(cubes, fx - _LEAST), np.take(cubes, fz - _LEAST)
    out = np.empty((*lightness.shape, 3), np.uint8)
    for channel, m in enumerate(matrix):
        linear = _descaled(m[0] * x + m[1] * y + m[2] * z, 14)
        out[:, :, channel] = np.take(levels, np.clip(linear, 0, (1 << _BITS) - 1))
    return out
