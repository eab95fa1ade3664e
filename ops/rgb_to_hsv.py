"""rgb_to_hsv: convert red, green and blue to hue, saturation and value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Case
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import Colour, extremes, extremes_dali, hue, hue_dali
from gpupipe.ops._shared.samples import tones
from gpupipe.ops.adjust_saturation import division_tolerance
from gpupipe.ops.convert_image_dtype import LARGEST, dtype_of

__all__ = ["RgbToHsv", "check_floats", "rgb_to_hsv"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RgbToHsv(Colour):
    """Convert RGB in 0..1 to hue, saturation and value in 0..1, as `tf.image` does. Exact on the CPU.

    Shapes: ``T[H,W,3]{HWC} -> T[H,W,3]{HWC}``, T float16 or float32.
    """

    levels: ClassVar[Literal["", "kept", "unit"]] = ""
    legal: ClassVar[tuple[int, ...] | None] = (3,)

    def __post_init__(self) -> None:
        Colour.__post_init__(self)
        check_floats(self.name, self.dtype)

    def formula(self, f: Array, *params: Any) -> Array:
        low, high = extremes(f)
        turns = hue(f, low, high) * np.float32(1 / 6)
        saturation = (high - low) / (high + (high == 0)) * (high > 0)
        return np.concatenate([turns + (turns < 0), saturation, high], axis=2)

    def formula_dali(self, d: Any, f: Any, *params: Any) -> Any:
        low, high = extremes_dali(d, f)
        turns = hue_dali(d, f, low, high) * (1 / 6)
        saturation = (high - low) / (high + (high == 0.0)) * (high > 0.0)
        return d.fn.cat(turns + (turns < 0.0), saturation, high, axis=2)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for x in tones(gray=False):
            if x.dtype.kind == "f":
                yield Case(cls(dtype=x.dtype.name), (x,), ("HWC",), **division_tolerance(x))


def check_floats(who: str, dtype: str) -> None:
    """Check that an image holds floats.

    Raises:
        SpecError: it holds integers.
    """
    if LARGEST[dtype] != 1:
        raise SpecError(f"{who} needs floats, got {dtype}; convert it with ops.convert_image_dtype(x, 'float32')")


def rgb_to_hsv(images: T) -> T:
    """Convert red, green and blue to hue, saturation and value.

    Args:
        images: one RGB image of floats 0..1 (after `batch`, many).

    Shapes: ``T[H,W,3]{HWC} -> T[H,W,3]{HWC}``, T float16 or float32. The hue is in turns.

    Raises:
        SpecError: not an image of 3 channels, or an image of integers.

    Example:
        >>> rgb_to_hsv(np.array([[[0, 1, 0]]], np.float32)) * 3
        array([[[1., 3., 3.]]], dtype=float32)
    """
    return apply(RgbToHsv(dtype=dtype_of("rgb_to_hsv", images)), images)  # type: ignore[no-any-return]
