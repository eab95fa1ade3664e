"""adjust_hue: rotate the hue of every pixel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import Colour, rotate_hue, rotate_hue_dali, rows_within
from gpupipe.ops._shared.samples import tones
from gpupipe.ops.adjust_saturation import division_tolerance
from gpupipe.ops.convert_image_dtype import dtype_of
from gpupipe.random import BatchRng

__all__ = ["AdjustHue", "Hue", "adjust_hue"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Hue(Colour):
    """H of HSV plus `delta` turns; saturation and value stay. Exact on the CPU."""

    levels: ClassVar[Literal["", "kept", "unit"]] = "kept"
    legal: ClassVar[tuple[int, ...] | None] = (3,)
    parameters: ClassVar[tuple[str, ...]] = ("delta",)

    def formula(self, f: Array, *params: Any) -> Array:
        return rotate_hue(f, params[0])

    def formula_dali(self, d: Any, f: Any, *params: Any) -> Any:
        return rotate_hue_dali(d, f, params[0])


@dataclass(frozen=True, slots=True)
class AdjustHue(Hue):
    """Rotate the hue of every pixel, as `tf.image` does up to a rounding.

    Attributes:
        delta: in turns, -1..1.

    Shapes: ``T[H,W,3]{HWC} -> T[H,W,3]{HWC}``
    """

    traceable: ClassVar[tuple[str, ...]] = ("delta",)

    delta: Any = 0.0

    def __post_init__(self) -> None:
        Colour.__post_init__(self)
        check_number(self.name, "delta", self.delta, -1, 1)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return (rows_within(self.name, "delta", self.delta, len(hw), -1, 1).astype(np.float32),)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for delta in (-0.7, 0, 0.1, 1):
            for x in tones(gray=False):
                yield Case(
                    cls(delta, dtype=x.dtype.name), (x,), ("HWC",), **division_tolerance(x), note=f"delta={delta}"
                )


def adjust_hue(image: T, delta: Any) -> T:
    """Add `delta` to the hue (H of HSV) of every pixel of `image`.

    Args:
        image: RGB, of uint8, uint16, float16 or float32.
        delta: in turns, -1..1: 1/3 makes red green. May be traced.

    Shapes: ``T[H,W,3]{HWC} -> T[H,W,3]{HWC}``

    Raises:
        SpecError: `image` is not an image of 3 channels and such a type, or `delta` is outside -1..1.

    Example:
        >>> adjust_hue(np.array([[[200, 100, 100]]], np.uint8), 0.5)
        array([[[100, 200, 200]]], dtype=uint8)
    """
    op = AdjustHue(delta, dtype=dtype_of("adjust_hue", image))
    return apply(op, image)  # type: ignore[no-any-return]
