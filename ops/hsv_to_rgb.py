"""hsv_to_rgb: convert hue, saturation and value to red, green and blue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import Colour, planes, planes_dali, tolerance
from gpupipe.ops._shared.samples import tones
from gpupipe.ops.convert_image_dtype import dtype_of
from gpupipe.ops.rgb_to_hsv import check_floats

__all__ = ["HsvToRgb", "hsv_to_rgb"]

T = TypeVar("T")

CENTRES, SIGNS, STARTS = ((3, 2, 4), (1, -1, -1), (-1, 2, 2))
"""By channel: its share is ``start + sign * |6 hue - centre|``, clipped to 0..1 (as in tf.image; red lies across 0)."""


@dataclass(frozen=True, slots=True)
class HsvToRgb(Colour):
    """Convert hue, saturation and value in 0..1 to RGB in 0..1, as `tf.image` does.

    Exact on every executor except for the last bit of float16.

    Shapes: ``T[H,W,3]{HWC} -> T[H,W,3]{HWC}``, T float16 or float32.
    """

    levels: ClassVar[Literal["", "kept", "unit"]] = ""
    legal: ClassVar[tuple[int, ...] | None] = (3,)

    def __post_init__(self) -> None:
        Colour.__post_init__(self)
        check_floats(self.name, self.dtype)

    def formula(self, f: Array, *params: Any) -> Array:
        turns, saturation, value = planes(f)
        centres, signs, starts = (np.array(numbers, np.float32) for numbers in (CENTRES, SIGNS, STARTS))
        share = np.clip(starts + signs * np.abs(np.float32(6) * turns - centres), 0, 1)
        result: Array = (np.float32(1) - saturation + saturation * share) * value
        return result

    def formula_dali(self, d: Any, f: Any, *params: Any) -> Any:
        turns, saturation, value = planes_dali(f)
        centres, signs, starts = (
            d.types.Constant(np.array(numbers, np.float32), device=d.device) for numbers in (CENTRES, SIGNS, STARTS)
        )
        share = d.math.clamp(starts + signs * d.math.fabs(6.0 * turns - centres), 0.0, 1.0)
        return (1.0 - saturation + saturation * share) * value

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for x in tones(gray=False):
            if x.dtype.kind == "f":
                yield Case(cls(dtype=x.dtype.name), (x,), ("HWC",), **tolerance(x))


def hsv_to_rgb(images: T) -> T:
    """Convert hue, saturation and value to red, green and blue.

    Args:
        images: one image of floats 0..1 (after `batch`, many); the hue is in turns.

    Shapes: ``T[H,W,3]{HWC} -> T[H,W,3]{HWC}``, T float16 or float32.

    Raises:
        SpecError: not an image of 3 channels, or an image of integers.

    Example:
        >>> hsv_to_rgb(np.array([[[0.5, 1, 1]]], np.float32))
        array([[[0., 1., 1.]]], dtype=float32)
    """
    return apply(HsvToRgb(dtype=dtype_of("hsv_to_rgb", images)), images)  # type: ignore[no-any-return]
