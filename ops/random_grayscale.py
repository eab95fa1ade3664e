"""random_grayscale: take the colours out of an image, with a probability; it keeps its three channels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import luma, luma_dali, tolerance
from gpupipe.ops._shared.samples import tones
from gpupipe.ops._shared.sometimes import Sometimes, flags, where_dali
from gpupipe.ops.convert_image_dtype import LARGEST, dtype_of
from gpupipe.random import BatchRng

__all__ = ["RandomGrayscale", "random_grayscale"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomGrayscale(Sometimes):
    """Replace the channels by the luma with probability `p`, as torchvision does with tensors: integers truncated.

    Shapes: ``T[H,W,3]{HWC} -> T[H,W,3]{HWC}``
    """

    levels: ClassVar[Literal["", "kept", "unit"]] = "kept"
    legal: ClassVar[tuple[int, ...] | None] = (3,)

    p: Any = 0.1

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return (flags(rng, self.p, len(hw)),)

    def reference(self, x: Array, *params: Any) -> Array:
        self.check_channels(x)
        if not params[0]:
            return x
        gray = luma(x.astype(np.float32, copy=False)).astype(self.dtype)  # of integers below 255.99: truncated
        return np.repeat(gray, 3, axis=2)

    def dali(self, d: Any, x: Any, *params: Any) -> Any:
        # Touches no pixel, and fails where an image, changed or not, has another number of channels.
        x = d.fn.reshape(x, src_dims=[0, 1, -1], rel_shape=[1, 1, 3], layout="HWC")
        return where_dali(d, params[0], x, (), lambda x: self._gray_dali(d, x))

    def _gray_dali(self, d: Any, x: Any) -> Any:
        gray = luma_dali(d.fn.cast(x, dtype=d.dtype(np.float32)))
        if LARGEST[self.dtype] != 1:
            gray = d.math.floor(gray)
        gray = d.fn.cast(gray, dtype=d.dtype(self.dtype))
        return d.fn.reshape(d.fn.cat(gray, gray, gray, axis=2), layout="HWC")

    @classmethod
    def cases(cls) -> Iterator[Case]:
        sums = "on the GPU sums may be fused with products, which rounds differently; equal on the CPU"
        for p in (0, 0.5, 1):
            for x in tones(gray=False):
                op = cls(p, dtype=x.dtype.name)
                yield Case(op, (x,), ("HWC",), **tolerance(x, sums, 1, 1e-6), note=f"p={p}")


def random_grayscale(image: T, p: Any = 0.1, *, seed: int | None = None) -> T:
    """Make `image` gray with probability `p`, as torchvision's `RandomGrayscale` with tensors. It keeps 3 channels.

    Args:
        image: 3 channels of uint8, uint16, float16 or float32.
        p: probability, 0..1. May be traced.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,3]{HWC} -> T[H,W,3]{HWC}``

    Raises:
        SpecError: `image` is not an image of 3 channels, or `p` is outside 0..1.

    Example:
        >>> random_grayscale(np.array([[[100, 0, 0]]], np.uint8), p=1)
        array([[[29, 29, 29]]], dtype=uint8)
    """
    op = RandomGrayscale(p, dtype=dtype_of("random_grayscale", image))
    return apply(op, image, seed=seed)  # type: ignore[no-any-return]
