"""posterize: keep the highest bits of every value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import Colour, floats, floats_dali, restored, rows_within, tolerance
from gpupipe.ops._shared.samples import tones
from gpupipe.ops.convert_image_dtype import LARGEST, dtype_of
from gpupipe.random import BatchRng

__all__ = ["Posterize", "posterize"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Posterize(Colour):
    """Keep the highest `bits` bits of every value, as torchvision does. Exact on every executor.

    Of floats there are ``2 ** bits`` levels, ``floor(x * levels) / levels``, clamped.

    Attributes:
        bits: an integer, 0..8.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``
    """

    parameters: ClassVar[tuple[str, ...]] = ("kept",)
    traceable: ClassVar[tuple[str, ...]] = ("bits",)

    bits: Any = 8

    def __post_init__(self) -> None:
        Colour.__post_init__(self)
        check_number(self.name, "bits", self.bits, 0, 8, integer=True)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        """A mask for integers, the number of levels for floats."""
        bits = rows_within(self.name, "bits", self.bits, len(hw), 0, 8, whole=True)
        if LARGEST[self.dtype] == 1:
            return (np.exp2(bits).astype(np.float32),)
        width = 8 * np.dtype(self.dtype).itemsize
        return (((1 << width) - (1 << (width - bits.astype(np.int64)))).astype(self.dtype),)

    def reference(self, x: Array, *params: Any) -> Array:
        (kept,) = params
        if LARGEST[self.dtype] != 1:
            result: Array = x & kept
            return result
        levels = np.clip(np.floor(floats(x) * kept), 0, kept - 1)
        return restored(levels / kept, self.dtype)

    def dali(self, d: Any, x: Any, *params: Any) -> Any:
        (kept,) = params
        if LARGEST[self.dtype] != 1:
            return x & kept
        levels = d.math.clamp(d.math.floor(floats_dali(d, x, self.dtype) * kept), 0.0, kept - 1.0)
        return d.fn.cast(levels / kept, dtype=d.dtype(self.dtype))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for bits in (0, 1, 5, 8):
            for x in tones():
                yield Case(cls(bits, dtype=x.dtype.name), (x,), ("HWC",), **tolerance(x), note=f"bits={bits}")


def posterize(image: T, bits: Any) -> T:
    """Keep the highest `bits` bits of every value of `image`, as torchvision's `posterize`.

    Args:
        image: of uint8, uint16, float16 or float32. Floats get ``2 ** bits`` levels from 0 to just below 1.
        bits: an integer, 0 (black) to 8 (of uint8 nothing changes). May be traced.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image of such a type, or `bits` is outside 0..8.

    Example:
        >>> posterize(np.array([[[0, 63, 64, 255]]], np.uint8), 2)
        array([[[  0,   0,  64, 192]]], dtype=uint8)
    """
    return apply(Posterize(bits, dtype=dtype_of("posterize", image)), image)  # type: ignore[no-any-return]
