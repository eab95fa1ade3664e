"""resize_with_crop_or_pad: crop or pad the edges to a given size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case
from gpupipe.ops._shared.composite import Composite, Row, call
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.geometry import check_sides, images_of, static, window
from gpupipe.ops._shared.samples import noise
from gpupipe.random import BatchRng

__all__ = ["ResizeWithCropOrPad", "resize_with_crop_or_pad"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ResizeWithCropOrPad(Composite):
    """Crop sides that are too long and pad those that are too short with zeros, centred. Exact on every executor.

    Rounds as `tf.image`: of n pixels with t wanted, (n - t) // 2 are cut, or (t - n) // 2 zeros added, at the front.

    Attributes:
        height: of the result, in pixels.
        width: of the result.
        odd_in_front: whether the odd one of an odd number of zeros is at the front, as in Hugging Face's `center_crop`.

    Shapes: ``T[H,W,C]{HWC} -> T[height,width,C]{HWC}``, for each of the images.
    """

    parameters: ClassVar[tuple[str, ...]] = ("start", "shape")
    traceable: ClassVar[tuple[str, ...]] = ("height", "width")

    height: Any
    width: Any
    odd_in_front: bool = False

    def __post_init__(self) -> None:
        check_sides(self, *self.traceable)

    def row(self, image: int = 0) -> Row:
        return ((Crop(static(self.height), static(self.width), pad=True), (0, 1)),)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        _, size = window(0, 0, self.height, self.width, len(hw))
        spare = hw.astype(np.int64) - size
        start = np.where((spare >= 0) | self.odd_in_front, spare // 2, -(-spare // 2))
        return window(start[:, 0], start[:, 1], size[:, 0], size[:, 1], len(hw))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for x in (noise(9, 12), noise(4, 7, 1), noise(8, 5, dtype="float32")):
            for height, width in ((6, 5), (13, 15), (6, 9)):
                yield Case(cls(height, width), (x,), ("HWC",), note=f"{height}x{width}")
        yield Case(cls(12, 9, odd_in_front=True), (noise(9, 12),), ("HWC",), note="front")


def resize_with_crop_or_pad(image: T, target_height: Any, target_width: Any) -> T:
    """Crop or pad `image` to a size, around its centre.

    Args:
        image: one image, a `Sample`, or a tuple of images of equal size.
        target_height: rows of the result; a number or a traced host value.
        target_width: columns of the result.

    Shapes: ``T[H,W,C]{HWC} -> T[target_height,target_width,C]{HWC}``

    Raises:
        SpecError: `image` is not an image, or a size is below 1.

    Example:
        >>> resize_with_crop_or_pad(np.ones((3, 1, 1), np.uint8), 2, 2).shape
        (2, 2, 1)
    """
    xs = images_of(image)
    return call(ResizeWithCropOrPad(target_height, target_width, images=len(xs)), image)  # type: ignore[no-any-return]
