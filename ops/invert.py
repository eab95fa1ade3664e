"""invert: the negative of an image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import Colour, floats_dali, tolerance
from gpupipe.ops._shared.samples import tones
from gpupipe.ops.convert_image_dtype import LARGEST, dtype_of

__all__ = ["Invert", "invert", "inverted", "inverted_dali"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Invert(Colour):
    """``255 - x``, ``65535 - x`` or ``1 - x``, as torchvision does. Exact on every executor.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``
    """

    @property
    def ignores_layout(self) -> bool:
        return True

    def reference(self, x: Array, *params: Any) -> Array:
        return inverted(x)

    def dali(self, d: Any, x: Any, *params: Any) -> Any:
        if LARGEST[self.dtype] != 1:
            return inverted_dali(d, x, self.dtype)
        return d.fn.cast(inverted_dali(d, floats_dali(d, x, self.dtype), "float32"), dtype=d.dtype(self.dtype))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for x in tones():
            yield Case(cls(dtype=x.dtype.name), (x,), ("HWC",), **tolerance(x))


def inverted(x: Array) -> Array:
    """The largest value of the type minus `x`; of floats 1 minus `x`."""
    result: Array = x.dtype.type(LARGEST[x.dtype.name]) - x
    return result


def inverted_dali(d: Any, x: Any, dtype: str) -> Any:
    """`inverted` as DALI nodes, for integers and float32."""
    if LARGEST[dtype] == 1:
        return 1.0 - x
    return x ^ d.types.Constant(LARGEST[dtype], dtype=d.dtype(np.dtype(dtype)))


def invert(image: T) -> T:
    """Invert the colours of `image`, as torchvision's `invert`.

    Args:
        image: of uint8, uint16, float16 or float32; floats are 0..1 and not clipped.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image of such a type.

    Example:
        >>> invert(np.array([[[0, 100, 255]]], np.uint8))
        array([[[255, 155,   0]]], dtype=uint8)
    """
    return apply(Invert(dtype=dtype_of("invert", image)), image)  # type: ignore[no-any-return]
