"""adjust_saturation: scale the saturation of every pixel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import Colour, rows_within, scale_saturation, scale_saturation_dali, tolerance
from gpupipe.ops._shared.samples import tones
from gpupipe.ops.convert_image_dtype import dtype_of
from gpupipe.random import BatchRng

__all__ = ["AdjustSaturation", "Saturation", "adjust_saturation", "division_tolerance"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Saturation(Colour):
    """S of HSV times `saturation_factor`, at most 1; hue and value stay. Exact on the CPU."""

    levels: ClassVar[Literal["", "kept", "unit"]] = "kept"
    legal: ClassVar[tuple[int, ...] | None] = (3,)
    parameters: ClassVar[tuple[str, ...]] = ("saturation_factor",)

    def formula(self, f: Array, *params: Any) -> Array:
        return scale_saturation(f, params[0])

    def formula_dali(self, d: Any, f: Any, *params: Any) -> Any:
        return scale_saturation_dali(d, f, params[0])


@dataclass(frozen=True, slots=True)
class AdjustSaturation(Saturation):
    """Scale the saturation of every pixel, as `tf.image` does up to a rounding.

    Attributes:
        saturation_factor: 1 changes nothing, 0 or less makes it gray.

    Shapes: ``T[H,W,3]{HWC} -> T[H,W,3]{HWC}``
    """

    traceable: ClassVar[tuple[str, ...]] = ("saturation_factor",)

    saturation_factor: Any = 1.0

    def __post_init__(self) -> None:
        Colour.__post_init__(self)
        check_number(self.name, "saturation_factor", self.saturation_factor)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        factors = rows_within(self.name, "saturation_factor", self.saturation_factor, len(hw))
        return (factors.astype(np.float32),)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for factor in (-1, 0.4, 2.5):
            for x in tones(gray=False):
                yield Case(
                    cls(factor, dtype=x.dtype.name), (x,), ("HWC",), **division_tolerance(x), note=f"factor={factor}"
                )


def division_tolerance(x: Array) -> dict[str, Any]:
    """The tolerance of a case with an image of this type."""
    reason = (
        "on the GPU a quotient may be rounded differently, which can move a value across an integer; the CPU is exact"
    )
    return tolerance(x, reason, 1, 1e-6)


def adjust_saturation(image: T, saturation_factor: Any) -> T:
    """Scale the saturation (S of HSV) of every pixel of `image`.

    Args:
        image: RGB, of uint8, uint16, float16 or float32.
        saturation_factor: 1 changes nothing, 0 makes it gray; the saturation is clipped at 1. May be traced.

    Shapes: ``T[H,W,3]{HWC} -> T[H,W,3]{HWC}``

    Raises:
        SpecError: `image` is not an image of 3 channels and such a type, or `saturation_factor` is not finite.

    Example:
        >>> adjust_saturation(np.array([[[200, 100, 100]]], np.uint8), 0.5)
        array([[[200, 150, 150]]], dtype=uint8)
    """
    op = AdjustSaturation(saturation_factor, dtype=dtype_of("adjust_saturation", image))
    return apply(op, image)  # type: ignore[no-any-return]
