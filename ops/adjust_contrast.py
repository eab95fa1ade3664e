"""adjust_contrast: scale the distance of every pixel from the mean of its channel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import (
    Colour,
    channel_means,
    channel_means_dali,
    floats,
    floats_dali,
    restored,
    restored_dali,
    rows_within,
    tolerance,
)
from gpupipe.ops._shared.samples import tones
from gpupipe.ops.convert_image_dtype import dtype_of
from gpupipe.random import BatchRng

__all__ = ["AdjustContrast", "Contrast", "adjust_contrast", "mean_tolerance"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Contrast(Colour):
    """``(x - m) * contrast_factor + m``, m the mean of the channel over the image.

    Depends on the whole image, so it does not commute with a crop. Exact on the CPU for integers; DALI sums floats
    in float32.
    """

    levels: ClassVar[Literal["", "kept", "unit"]] = "kept"
    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = ""
    parameters: ClassVar[tuple[str, ...]] = ("contrast_factor",)

    def reference(self, x: Array, *params: Any) -> Array:
        with np.errstate(all="ignore"):  # for floats that are not finite
            f, mean = floats(x), channel_means(x)
            return restored((f - mean) * params[0] + mean, self.dtype)

    def dali(self, d: Any, x: Any, *params: Any) -> Any:
        f = floats_dali(d, x, self.dtype)
        mean = channel_means_dali(d, x, f, self.dtype)
        return restored_dali(d, (f - mean) * params[0] + mean, self.dtype)


@dataclass(frozen=True, slots=True)
class AdjustContrast(Contrast):
    """Scale the distance of every pixel from the mean of its channel, as `tf.image` does.

    Attributes:
        contrast_factor: 1 changes nothing, 0 leaves the mean.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``
    """

    traceable: ClassVar[tuple[str, ...]] = ("contrast_factor",)

    contrast_factor: Any = 1.0

    def __post_init__(self) -> None:
        Colour.__post_init__(self)
        check_number(self.name, "contrast_factor", self.contrast_factor)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        factors = rows_within(self.name, "contrast_factor", self.contrast_factor, len(hw))
        return (factors.astype(np.float32),)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for factor in (0, 0.4, 2.5):
            for x in tones():
                yield Case(
                    cls(factor, dtype=x.dtype.name), (x,), ("HWC",), **mean_tolerance(x), note=f"factor={factor}"
                )


def mean_tolerance(x: Array) -> dict[str, Any]:
    """The tolerance of a case with an image of this type."""
    return tolerance(
        x, "DALI sums floats in float32, so its mean is rounded differently" if x.dtype.kind == "f" else "", 0, 1e-6
    )


def adjust_contrast(image: T, contrast_factor: Any) -> T:
    """Scale the distance of every pixel of `image` from the mean of its channel.

    Args:
        image: of uint8, uint16, float16 or float32. Integers saturate, floats are not clipped.
        contrast_factor: 1 changes nothing, 0 leaves the mean. May be traced.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``; after `batch`, each image has its own mean.

    Raises:
        SpecError: `image` is not an image of such a type, or `contrast_factor` is not finite.

    Example:
        >>> adjust_contrast(np.array([[[10], [30]]], np.uint8), 2.0)
        array([[[ 0],
                [40]]], dtype=uint8)
    """
    op = AdjustContrast(contrast_factor, dtype=dtype_of("adjust_contrast", image))
    return apply(op, image)  # type: ignore[no-any-return]
