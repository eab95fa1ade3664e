"""hsv_to_rgb: red, green and blue of what is given as hue, saturation and value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.graph.op import Array, Case
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import Colour, planes, planes_dali, tolerance
from gpupipe.ops._shared.samples import tones
from gpupipe.ops.convert_image_dtype import dtype_of
from gpupipe.ops.rgb_to_hsv import check_floats

__all__ = ["HsvToRgb", "hsv_to_rgb"]

T = TypeVar("T")

PLACES, SIGNS, STARTS = ((3, 2, 4), (1, -1, -1), (-1, 2, 2))
"""A channel's share is ``start + sign * |6 hue - place|``, clipped to 0..1 (as tf.image has it; red lies across 0)."""


@dataclass(frozen=True, slots=True)
class HsvToRgb(Colour):
    """Hue, saturation and value in 0..1 as RGB in 0..1: `tf.image`'s law.

    Exact on every executor, but for the last bit of float16.

    Shapes: ``T[H,W,3]{HWC} -> T[H,W,3]{HWC}``, T float16 or float32.
    """

    legal: ClassVar[tuple[int, ...] | None] = (3,)

    def __post_init__(self) -> None:
        Colour.__post_init__(self)
        check_floats(self.name, self.dtype)

    def law(self, f: Array, *params: Any) -> Array:
        turns, saturation, value = planes(f)
        places, signs, starts = (np.array(numbers, np.float32) for numbers in (PLACES, SIGNS, STARTS))
        share = np.clip(starts + signs * np.abs(np.float32(6) * turns - places), 0, 1)
        result: Array = (np.float32(1) - saturation + saturation * share) * value
        return result

    def law_dali(self, d: Any, f: Any, *params: Any) -> Any:
        turns, saturation, value = planes_dali(f)
        places, signs, starts = (
            d.types.Constant(np.array(numbers, np.float32), device=d.device) for numbers in (PLACES, SIGNS, STARTS)
        )
        share = d.math.clamp(starts + signs * d.math.fabs(6.0 * turns - places), 0.0, 1.0)
        return (1.0 - saturation + saturation * share) * value

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for x in tones(gray=False):
            if x.dtype.kind == "f":
                yield Case(cls(dtype=x.dtype.name), (x,), ("HWC",), **tolerance(x))


def hsv_to_rgb(images: T) -> T:
    """Red, green and blue of what is given as hue, saturation and value.

    Args:
        images: one image of floats 0..1 (behind `batch`, many); the hue is in turns.

    Shapes: ``T[H,W,3]{HWC} -> T[H,W,3]{HWC}``, T float16 or float32.

    Raises:
        SpecError: not an image of 3 channels, or one of integers.

    Example:
        >>> hsv_to_rgb(np.array([[[0.5, 1, 1]]], np.float32))
        array([[[0., 1., 1.]]], dtype=float32)
    """
    return apply(HsvToRgb(dtype=dtype_of("hsv_to_rgb", images)), images)  # type: ignore[no-any-return]
