"""affine: matrices of affine maps, from the angles, shifts, scales and shears of torchvision.

A matrix leads from the result to the image: ``(x, y) = matrix @ (x', y', 1)``, in pixels from the corner, float32[2,3].
Of the image it is the inverse of: shear along x, then along y, scale, rotate, all around `center`; then shift.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.op import Array, check_number
from gpupipe.graph.symbols import Symbol, part_of
from gpupipe.integers import is_integer, plain
from gpupipe.ops._shared.geometry import column, is_traced_number

__all__ = ["expanded", "inverse_affine", "numbers_of", "spread"]


def inverse_affine(
    hw: Array,
    angle: Any = 0.0,
    translate: tuple[Any, Any] = (0.0, 0.0),
    scale: Any = 1.0,
    shear: tuple[Any, Any] = (0.0, 0.0),
    center: tuple[Any, Any] | None = None,
    size: Array | None = None,
) -> Array:
    """The matrices of a batch, as torchvision's `_get_inverse_affine_matrix` has them: float32[B,2,3].

    Args:
        hw: int32[B,2], sizes of the images.
        angle: degrees, clockwise; like all others, a number or one per row.
        translate: pixels to the right and down.
        scale: factor, above 0.
        shear: degrees along x and y.
        center: (x, y) in pixels from the corner of the image; None for its middle.
        size: int32[B,2], sizes of the results; those of the images if None. The middles of both coincide.
    """
    count = len(hw)
    middle = hw[:, ::-1] * 0.5
    turn, x_shear, y_shear = (np.radians(column(value, count, np.float64)) for value in (angle, *shear))
    factor = column(scale, count, np.float64)
    a = np.cos(turn - y_shear) / np.cos(y_shear)
    b = -(a * np.tan(x_shear) + np.sin(turn))
    c = np.sin(turn - y_shear) / np.cos(y_shear)
    d = np.cos(turn) - c * np.tan(x_shear)
    linear = (np.stack([d, -b, -c, a], axis=1) / factor[:, None]).reshape(count, 2, 2)
    fixed = middle if center is None else np.stack([column(value, count, np.float64) for value in center], axis=1)
    shift = np.stack([column(value, count, np.float64) for value in translate], axis=1)
    if size is not None:
        shift = shift + size[:, ::-1] * 0.5 - middle
    # of whole and half pixels a quarter turn makes whole and half pixels: no rounding may be left of its sine
    linear[np.abs(linear) < 1e-12] = 0
    offset = fixed - np.einsum("bij,bj->bi", linear, fixed + shift)
    offset[np.abs(offset) < 1e-9] = 0
    return np.concatenate([linear, offset[:, :, None]], axis=2).astype(np.float32)


def expanded(hw: Array, angle: Any, center: tuple[Any, Any] | None = None) -> Array:
    """The sizes that hold all of the images rotated by `angle`, as torchvision's: int32[B,2], (height, width)."""
    count = len(hw)
    turn = np.radians(column(angle, count, np.float64))
    cos, sin = np.cos(turn), np.sin(turn)
    middle = hw[:, ::-1] * 0.5
    ends = np.array([(-1, -1), (-1, 1), (1, 1), (1, -1)]) * middle[:, None]  # of the image, [B,4,2] (x, y)
    fixed = np.zeros((count, 2))
    if center is not None:
        fixed = np.stack([column(value, count, np.float64) for value in center], axis=1) - middle
    matrix = np.stack([cos, sin, -sin, cos], axis=1).reshape(count, 2, 2)
    offset = fixed - np.einsum("bij,bj->bi", matrix, fixed)
    moved = np.einsum("bij,bkj->bki", matrix, ends) + (offset + middle)[:, None]
    moved = np.trunc(moved * 1e4) / 1e4  # without the last digits of sines
    size: Array = (np.ceil(moved.max(axis=1)) - np.floor(moved.min(axis=1)))[:, ::-1]
    if center is None:  # the formula has a line too many where the sides differ by an odd number
        turns = column(angle, count, np.float64)[:, None] / 90
        size = np.where(turns % 1 == 0, np.where(turns % 2 == 1, hw[:, ::-1], hw), size)
    return np.maximum(size, 1).astype(np.int32)


def numbers_of(who: str, name: str, value: Any, count: int) -> Any:
    """A tuple of exactly `count` numbers, plain or traced, from a sequence.

    Raises:
        PlanTypeError: `value` is something else.
    """
    value = plain(value)
    if isinstance(value, (tuple, list, np.ndarray)) and getattr(value, "ndim", 1) == 1 and len(value) == count:
        return tuple(plain(item) if not isinstance(item, np.floating) else float(item) for item in value)
    if isinstance(value, Symbol) and not is_traced_number(value):
        return tuple(part_of(value, i) for i in range(count))
    raise PlanTypeError(f"{who} needs {name} as {count} numbers, got {value!r}")


def spread(who: str, name: str, value: Any) -> tuple[Any, Any]:
    """Bounds of an angle in degrees: two numbers, or one, d >= 0, for -d to d.

    Raises:
        PlanTypeError: `value` is something else.
        SpecError: d is below 0, or the first bound is above the second.
    """
    value = plain(value)
    if is_integer(value) or isinstance(value, (float, np.floating)):
        check_number(who, name, value, 0)
        return -float(value), float(value)
    low, high = numbers_of(who, name, value, 2)
    for bound in (low, high):
        check_number(who, name, bound)
    if not isinstance(low, Symbol) and not isinstance(high, Symbol) and low > high:
        raise SpecError(f"{who} needs {name} from small to large, got {value!r}")
    return low, high
