"""solarize: invert the values from a threshold on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import Colour, floats_dali, rows_within, tolerance
from gpupipe.ops._shared.samples import tones
from gpupipe.ops.convert_image_dtype import LARGEST, dtype_of
from gpupipe.ops.invert import inverted, inverted_dali
from gpupipe.random import BatchRng

__all__ = ["Solarize", "solarize", "thresholds"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Solarize(Colour):
    """Invert the values of each channel that are at least `threshold`, as torchvision does. Exact on every executor.

    Attributes:
        threshold: in the units of the image, at most the largest value of its type, or 1.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``
    """

    parameters: ClassVar[tuple[str, ...]] = ("threshold",)
    traceable: ClassVar[tuple[str, ...]] = ("threshold",)

    threshold: Any = 128

    def __post_init__(self) -> None:
        Colour.__post_init__(self)
        check_threshold(self.name, self.threshold, self.dtype)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        numbers = rows_within(self.name, "threshold", self.threshold, len(hw), high=LARGEST[self.dtype])
        return (thresholds(numbers, self.dtype),)

    def reference(self, x: Array, *params: Any) -> Array:
        if LARGEST[self.dtype] == 1:
            return np.where(x >= params[0], inverted(x), x)
        result: Array = x ^ np.multiply(x >= params[0], LARGEST[self.dtype], dtype=x.dtype)
        return result

    def dali(self, d: Any, x: Any, *params: Any) -> Any:
        largest, (threshold,) = LARGEST[self.dtype], params
        if largest != 1:  # of integers, those bits are flipped where the comparison holds
            return x ^ ((x >= threshold) * d.types.Constant(largest, dtype=d.dtype(self.dtype)))
        f = floats_dali(d, x, self.dtype)
        # products with 0 and 1 are exact
        chosen = (f >= threshold) * inverted_dali(d, f, "float32") + (f < threshold) * f
        return d.fn.cast(chosen, dtype=d.dtype(self.dtype))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for share in (0, 0.3, 1):
            for x in tones():
                largest = LARGEST[x.dtype.name]
                op = cls(share * largest, dtype=x.dtype.name)
                yield Case(op, (x,), ("HWC",), **tolerance(x), note=f"threshold={share}")


def check_threshold(who: str, threshold: Any, dtype: str) -> None:
    """Check a threshold, plain or traced; one between 0 and 1 is a share, in the place of a value of integers.

    Raises:
        SpecError: it is above the largest value of the type, or a share.
    """
    check_number(who, "threshold", threshold, None, LARGEST[dtype])
    if LARGEST[dtype] != 1 and isinstance(threshold, float) and 0 < threshold < 1:
        largest = LARGEST[dtype]
        raise SpecError(
            f"{who} needs threshold in the units of {dtype}, 0 to {largest}, got {threshold}; "
            f"{threshold:g} of that is {threshold * largest:g}"
        )


def thresholds(numbers: Array, dtype: str) -> Array:
    """Thresholds as a parameter: int32[B] for integers, where x >= t is x >= ceil(t); float32[B] for floats.

    torch compares integers with a threshold of float32 as well.
    """
    rounded: Array = numbers.astype(np.float32)
    return rounded if LARGEST[dtype] == 1 else np.ceil(np.maximum(rounded, 0)).astype(np.int32)


def solarize(image: T, threshold: Any) -> T:
    """Invert all values of `image` that are at least `threshold`, as torchvision's `solarize`.

    Args:
        image: of uint8, uint16, float16 or float32; floats are 0..1 and not clipped.
        threshold: in the units of the image, up to 255, 65535 or 1. May be traced.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image of such a type, or `threshold` is above the largest value.

    Example:
        >>> solarize(np.array([[[0, 127, 128, 255]]], np.uint8), 128)
        array([[[  0, 127, 127,   0]]], dtype=uint8)
    """
    return apply(Solarize(threshold, dtype=dtype_of("solarize", image)), image)  # type: ignore[no-any-return]
