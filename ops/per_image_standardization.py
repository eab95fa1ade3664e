"""per_image_standardization: subtract an image's own mean and divide by its own standard deviation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case, Op
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.samples import noise, tones
from gpupipe.ops.normalize import check_channels
from gpupipe.spec import TensorSpec

__all__ = ["PerImageStandardization", "per_image_standardization"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PerImageStandardization(Op):
    """``(x - mean) / max(std, 1 / sqrt(N))`` over all N values of the image, as in `tf.image`.

    Depends on the whole image, so it does not commute with a crop.

    Shapes: ``T[H,W,C]{HWC} -> float32[H,W,C]{HWC}``; T of 8 to 32 bits.
    """

    still: ClassVar[bool] = True

    @property
    def ignores_layout(self) -> bool:
        return True

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        x = xs[0].require(self.name, layout="HWC")
        check_channels(self.name, x, "HWC")
        return TensorSpec(x.shape, np.float32, "HWC")

    def reference(self, x: Array) -> Array:
        f = x.astype(np.float32)
        with np.errstate(all="ignore"):  # for floats that are not finite
            f -= np.float32(f.mean(dtype=np.float64))
            std = np.float32(np.sqrt(np.square(f).mean(dtype=np.float64)))
            f /= np.maximum(std, np.float32(1 / np.sqrt(f.size)))
        return f

    def dali(self, d: Any, x: Any) -> Any:
        f = d.fn.cast(x, dtype=d.dtype(np.float32))
        f = f - d.fn.reductions.mean(f)
        # The float32 sum has a small error; for an image of one colour the last division would multiply it by sqrt(N).
        f = f - d.fn.reductions.mean(f)
        shape = x.shape()
        count = d.fn.cast(shape[0] * shape[1] * shape[2], dtype=d.dtype(np.float32))
        return f / d.math.max(d.fn.reductions.rms(f), 1.0 / d.math.sqrt(count))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        reason = "DALI sums in float32, so mean and deviation are rounded differently"
        for x in tones():
            yield Case(cls(), (x,), ("HWC",), atol=1e-5, reason=reason)
        yield Case(cls(), (noise(90, 70),), ("HWC",), atol=1e-5, reason=reason)
        yield Case(cls(), (np.full((60, 50, 3), 201, np.uint8),), ("HWC",), atol=1e-5, reason=reason, note="plain")
        f = np.full((150, 131, 3), 200.7, np.float32)
        yield Case(cls(), (f,), ("HWC",), atol=1e-5, reason=reason, note="plain")


def per_image_standardization(image: T) -> T:
    """Subtract the mean of `image` and divide by its standard deviation, over all channels together.

    The deviation is at least ``1 / sqrt(N)``, N the number of values: an image of one colour becomes 0.

    Args:
        image: integers or floats of 8 to 32 bits, in any units.

    Shapes: ``T[H,W,C]{HWC} -> float32[H,W,C]{HWC}``; after `batch`, each image has its own mean and deviation.

    Raises:
        SpecError: `image` is not an image of such a type.

    Example:
        >>> per_image_standardization(np.array([[[10], [30]]], np.uint8))
        array([[[-1.],
                [ 1.]]], dtype=float32)
    """
    return apply(PerImageStandardization(), image)  # type: ignore[no-any-return]
