"""adjust_sharpness: blend an image with its smoothed version, or away from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import Colour, rows_within, tolerance
from gpupipe.ops._shared.samples import noise, tones
from gpupipe.ops._shared.sometimes import where_dali
from gpupipe.ops.convert_image_dtype import LARGEST, dtype_of
from gpupipe.random import BatchRng

__all__ = ["AdjustSharpness", "adjust_sharpness", "sharpness_tolerance"]

T = TypeVar("T")

KERNEL = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32)
"""Pillow's filter SMOOTH, times 13."""


@dataclass(frozen=True, slots=True)
class AdjustSharpness(Colour):
    """``x + (1 - factor) (smooth(x) - x)``, clamped, as torchvision and Pillow do; integers are truncated.

    The outermost ring of pixels stays as it is, and so do images of less than 3 pixels on a side.

    Attributes:
        sharpness_factor: 0 smooths, 1 changes nothing, 2 sharpens.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``
    """

    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = ""
    parameters: ClassVar[tuple[str, ...]] = ("weight", "kernel", "margin", "size")
    traceable: ClassVar[tuple[str, ...]] = ("sharpness_factor",)

    sharpness_factor: Any = 1.0

    def __post_init__(self) -> None:
        Colour.__post_init__(self)
        check_number(self.name, "sharpness_factor", self.sharpness_factor, 0)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        """The weight of the smooth image; for DALI the kernel, the width of the ring and the size of the image."""
        factors = rows_within(self.name, "sharpness_factor", self.sharpness_factor, len(hw), 0)
        has_inside: Array = np.all(hw > 2, axis=1)
        weight = ((1 - factors) * has_inside).astype(np.float32)
        margin = np.repeat(has_inside[:, None], 2, axis=1).astype(np.int32)
        return weight, np.tile(KERNEL, (len(hw), 1, 1)), margin, hw.astype(np.int32)

    def reference(self, x: Array, *params: Any) -> Array:
        weight, _, margin, _ = params
        if not margin[0]:
            return x
        y = x.astype(np.float32)
        inside = y[1:-1, 1:-1]
        # sums of integers are exact
        columns = y[:-2] + y[1:-1] + y[2:]
        total = columns[:, :-2] + columns[:, 1:-1] + columns[:, 2:]
        total += np.float32(4) * inside
        if LARGEST[self.dtype] == 1:
            smooth = total * np.float32(1 / 13)
        else:
            smooth = np.floor((total + np.float32(6.5)) * np.float32(1 / 13))  # no thirteenth lies halfway
        inside += (smooth - inside) * weight
        result: Array = np.clip(y, 0, LARGEST[self.dtype], out=y).astype(self.dtype)
        return result

    def dali(self, d: Any, x: Any, *params: Any) -> Any:
        if not d.unknown_channels:
            return self._sharpened(d, x, *params)
        # the filter of an image without channels writes beyond its memory
        return where_dali(d, x.shape()[2] > 0, x, params, lambda x, *params: self._sharpened(d, x, *params))

    def _sharpened(self, d: Any, x: Any, weight: Any, kernel: Any, margin: Any, size: Any) -> Any:
        integers, real = LARGEST[self.dtype] != 1, d.dtype(np.float32)
        f = d.fn.reshape(d.fn.cast(x, dtype=real), layout="HWC")  # an array of the user's own has axes without names
        total = d.fn.filter(f, kernel.gpu() if d.device == "gpu" else kernel)
        smooth = d.math.floor((total + 6.5) * (1 / 13)) if integers else total * (1 / 13)
        change = (smooth - f) * weight
        inside = d.fn.slice(
            change, margin, size - 2 * margin, axes=[0, 1], normalized_anchor=False, normalized_shape=False
        )
        ringed = d.fn.slice(
            inside,
            0 - margin,
            size,
            axes=[0, 1],
            normalized_anchor=False,
            normalized_shape=False,
            out_of_bounds_policy="pad",
            fill_values=0,
        )
        y = f + ringed
        return d.fn.cast(d.math.floor(y) if integers else d.math.clamp(y, 0.0, 1.0), dtype=d.dtype(self.dtype))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for factor in (0, 2.5):
            for x in (*tones(), noise(2, 9), noise(3, 3)):
                op = cls(factor, dtype=x.dtype.name)
                yield Case(op, (x,), ("HWC",), **sharpness_tolerance(x), note=f"factor={factor}")


def sharpness_tolerance(x: Array) -> dict[str, Any]:
    """The tolerance of a case with an image of this type."""
    return tolerance(x, "a product and a sum may be fused, which can move a value across an integer", 1, 2e-6)


def adjust_sharpness(image: T, sharpness_factor: Any) -> T:
    """Sharpen `image`, or smooth it, as torchvision's `adjust_sharpness` with tensors.

    Args:
        image: of uint8, uint16, float16 or float32. Results are clamped, floats to 0..1.
        sharpness_factor: at least 0: 0 smooths, 1 changes nothing, 2 sharpens. May be traced.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image of such a type, or `sharpness_factor` is negative.

    Example:
        >>> x = np.zeros((3, 3, 1), np.uint8)
        >>> x[1, 1] = 130
        >>> adjust_sharpness(x, 0)[1, 1]
        array([50], dtype=uint8)
    """
    op = AdjustSharpness(sharpness_factor, dtype=dtype_of("adjust_sharpness", image))
    return apply(op, image)  # type: ignore[no-any-return]
