"""adjust_brightness: add a number to every pixel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import Colour, rows_within, tolerance
from gpupipe.ops._shared.keywords import keywords_after
from gpupipe.ops._shared.samples import tones
from gpupipe.ops.convert_image_dtype import LARGEST, dtype_of
from gpupipe.random import BatchRng

__all__ = ["AdjustBrightness", "Brightness", "adjust_brightness"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Brightness(Colour):
    """``x + delta``, x in 0..1 where the image holds integers.

    Exact on every executor except for the last bit of float16.
    """

    levels: ClassVar[Literal["", "kept", "unit"]] = "kept"
    parameters: ClassVar[tuple[str, ...]] = ("delta",)

    @property
    def ignores_layout(self) -> bool:
        return True

    def formula(self, f: Array, *params: Any) -> Array:
        result: Array = f + params[0]
        return result

    def formula_dali(self, d: Any, f: Any, *params: Any) -> Any:
        return f + params[0]


def within(dtype: str) -> tuple[float, float]:
    """The bounds of a number to add: the whole range of integers, as which 30 of 255 are a mistake; none of floats."""
    return (-np.inf, np.inf) if LARGEST[dtype] == 1 else (-1, 1)


@dataclass(frozen=True, slots=True)
class AdjustBrightness(Brightness):
    """Add `delta`, as `tf.image` does. Exact on every executor except for the last bit of float16.

    Attributes:
        delta: the number to add: for integers 1 is their whole range, for floats it is in the image's own units.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``
    """

    traceable: ClassVar[tuple[str, ...]] = ("delta",)

    delta: Any = 0.0

    def __post_init__(self) -> None:
        Colour.__post_init__(self)
        check_number(self.name, "delta", self.delta, *within(self.dtype))

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return (rows_within(self.name, "delta", self.delta, len(hw), *within(self.dtype)).astype(np.float32),)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for delta in (-0.3, 0.1, 1.0):
            for x in tones():
                yield Case(cls(delta, dtype=x.dtype.name), (x,), ("HWC",), **tolerance(x), note=f"delta={delta}")


@keywords_after("write delta= for a number to add; color_jitter(image, (factor, factor)) multiplies, as torchvision's")
def adjust_brightness(image: T, *, delta: Any) -> T:
    """Add `delta` to every pixel of `image`.

    Args:
        image: of uint8, uint16, float16 or float32. Integers saturate, floats are not clipped.
        delta: the number to add: for integers -1..1, where 1 is their whole range; for floats, in their own units. May
            be traced.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image of such a type, or `delta` is not finite, or not -1..1 for integers.

    Example:
        >>> adjust_brightness(np.array([[[0, 100, 250]]], np.uint8), delta=0.1)
        array([[[ 25, 125, 255]]], dtype=uint8)
    """
    op = AdjustBrightness(delta, dtype=dtype_of("adjust_brightness", image))
    return apply(op, image)  # type: ignore[no-any-return]
