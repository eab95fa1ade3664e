"""grayscale_to_rgb: repeat the one channel of an image three times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import ShapeError, SpecError
from gpupipe.graph.op import Array, Case, Op
from gpupipe.graph.symbols import apply
from gpupipe.spec import TensorSpec

__all__ = ["GrayscaleToRgb", "grayscale_to_rgb"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GrayscaleToRgb(Op):
    """Repeat the one channel three times. Exact on every executor.

    Shapes: ``T[H,W,1]{HWC} -> T[H,W,3]{HWC}``
    """

    levels: ClassVar[Literal["", "kept", "unit"]] = "kept"
    still: ClassVar[bool] = True
    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = "rows"

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        (x,) = xs
        x = x.require("grayscale_to_rgb", layout="HWC")
        height, width, channels = x.shape or (None, None, None)
        if channels not in (1, None):
            raise SpecError(f"grayscale_to_rgb needs an image of 1 channel, got {x}")
        return TensorSpec((height, width, 3), x.dtype, "HWC")

    def reference(self, x: Array) -> Array:
        if x.shape[2] != 1:
            raise ShapeError(f"grayscale_to_rgb needs an image of 1 channel, got {x.shape[2]}; decode with channels=1")
        return np.repeat(x, 3, axis=2)

    def dali(self, d: Any, x: Any) -> Any:
        x = d.fn.reshape(x, layout="HWC")
        return d.fn.cat(x, x, x, axis=2)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for dtype in (np.uint8, np.float32):
            yield Case(cls(), (np.arange(20).reshape(5, 4, 1).astype(dtype),), ("HWC",))


def grayscale_to_rgb(image: T) -> T:
    """Repeat the one channel of `image` three times.

    Shapes: ``T[H,W,1]{HWC} -> T[H,W,3]{HWC}``

    Raises:
        SpecError: `image` is not an image of 1 channel.

    Example:
        >>> grayscale_to_rgb(np.array([[[7]]], np.uint8))
        array([[[7, 7, 7]]], dtype=uint8)
    """
    return apply(GrayscaleToRgb(), image)  # type: ignore[no-any-return]
