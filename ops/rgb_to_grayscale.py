"""rgb_to_grayscale: the luma of each pixel as an image of one channel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import ShapeError, SpecError
from gpupipe.graph.op import Array, Case, Op
from gpupipe.graph.symbols import apply
from gpupipe.ops.cast import saturated, saturated_dali
from gpupipe.ops.convert_image_dtype import LARGEST, checked_dtype, dtype_of
from gpupipe.spec import TensorSpec

__all__ = ["RgbToGrayscale", "rgb_to_grayscale"]

T = TypeVar("T")

WEIGHTS = (0.2989, 0.587, 0.114)
"""Weights of red, green and blue (ITU-R BT.601, as tf.image rounds them)."""


@dataclass(frozen=True, slots=True)
class RgbToGrayscale(Op):
    """Weighted sum of the channels, in the dtype of the image, as in `tf.image`.

    Integers are converted to floats 0..1 and back as in `convert_image_dtype`. Exact on the CPU.

    Attributes:
        dtype: of the image.

    Shapes: ``T[H,W,3]{HWC} -> T[H,W,1]{HWC}``
    """

    levels: ClassVar[Literal["", "kept", "unit"]] = "kept"
    still: ClassVar[bool] = True
    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = "rows"

    dtype: str = "uint8"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", checked_dtype("rgb_to_grayscale", self.dtype))

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        (x,) = xs
        x = x.require("rgb_to_grayscale", layout="HWC", dtype=self.dtype)
        height, width, channels = x.shape or (None, None, None)
        if channels not in (3, None):
            raise SpecError(f"rgb_to_grayscale needs an image of 3 channels, got {x}")
        return TensorSpec((height, width, 1), self.dtype, "HWC")

    def reference(self, x: Array) -> Array:
        if x.shape[2] != 3:
            raise ShapeError(f"rgb_to_grayscale needs an image of 3 channels, got {x.shape[2]}; decode with channels=3")
        f = x.astype(np.float32)
        if self._scale != 1:
            f *= np.float32(1 / self._scale)
        red, green, blue = (f[:, :, k : k + 1] * np.float32(weight) for k, weight in enumerate(WEIGHTS))
        gray = red + green + blue
        if self._scale != 1:
            gray *= np.float32(self._scale + 0.5)
        result: Array = saturated(gray, np.dtype(self.dtype))
        return result

    def dali(self, d: Any, x: Any) -> Any:
        f = d.fn.cast(x, dtype=d.dtype(np.float32))
        if self._scale != 1:
            f = f * (1 / self._scale)
        red, green, blue = (f[:, :, k : k + 1] * weight for k, weight in enumerate(WEIGHTS))
        gray = red + green + blue
        if self._scale != 1:
            gray = gray * (self._scale + 0.5)
        return d.fn.reshape(saturated_dali(d, gray, np.dtype(self.dtype)), layout="HWC")

    @property
    def _scale(self) -> int:
        return LARGEST[self.dtype]

    @classmethod
    def cases(cls) -> Iterator[Case]:
        x = np.random.default_rng(0).integers(0, 256, (16, 12, 3), dtype=np.uint8)
        step = "on the GPU sums may be fused with products, which rounds differently:"
        yield Case(cls("uint8"), (x,), ("HWC",), atol=1, reason=f"{step} a value just below an integer")
        yield Case(cls("uint16"), (x.astype(np.uint16) * 257,), ("HWC",), atol=1, reason=f"{step} values up to 65535")
        f = x.astype(np.float32) / 255
        yield Case(cls("float32"), (f,), ("HWC",), atol=1e-6, reason=f"{step} values up to 1")
        yield Case(cls("float16"), (f.astype(np.float16),), ("HWC",), atol=1e-3, reason=f"{step} float16 below 1")


def rgb_to_grayscale(image: T) -> T:
    """Convert to gray: 0.2989 R + 0.587 G + 0.114 B, in the dtype of `image`.

    Shapes: ``T[H,W,3]{HWC} -> T[H,W,1]{HWC}``

    Raises:
        SpecError: `image` is not an image of 3 channels.

    Example:
        >>> rgb_to_grayscale(np.array([[[255, 0, 0]]], np.uint8))
        array([[[76]]], dtype=uint8)
    """
    op = RgbToGrayscale(dtype_of("rgb_to_grayscale", image))
    return apply(op, image)  # type: ignore[no-any-return]
