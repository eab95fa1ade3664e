"""center_crop: crop the centre, a given number of pixels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case
from gpupipe.ops._shared.composite import Composite, Row, call
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.geometry import check_sides, images_of, pair, static, window
from gpupipe.ops._shared.keywords import keywords_after
from gpupipe.ops._shared.samples import noise
from gpupipe.random import BatchRng

__all__ = ["CenterCrop", "center_crop"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CenterCrop(Composite):
    """Crop `height` x `width` pixels around the centre; a smaller image gets zeros around it. Exact on every executor.

    Rounds as torchvision: of n pixels with t wanted, the first is round((n - t) / 2), half to even (TensorFlow rounds
    down); a smaller image gets (t - n) // 2 zeros before it.

    Shapes: ``T[H,W,C]{HWC} -> T[height,width,C]{HWC}``, for each of the images.
    """

    parameters: ClassVar[tuple[str, ...]] = ("start", "shape")
    traceable: ClassVar[tuple[str, ...]] = ("height", "width")

    height: Any
    width: Any

    def __post_init__(self) -> None:
        check_sides(self, *self.traceable)

    def row(self, image: int = 0) -> Row:
        return ((Crop(static(self.height), static(self.width), pad=True), (0, 1)),)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        _, size = window(0, 0, self.height, self.width, len(hw))
        spare = hw.astype(np.int64) - size
        start = np.where(spare >= 0, np.rint(spare / 2), -(-spare // 2))
        return window(start[:, 0], start[:, 1], size[:, 0], size[:, 1], len(hw))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for x in (noise(9, 12), noise(10, 7, 1), noise(8, 9, dtype="float32")):
            yield Case(cls(6, 5), (x,), ("HWC",))
            yield Case(cls(13, 6), (x,), ("HWC",), note="higher")
        yield Case(cls(12, 15), (noise(3, 4),), ("HWC",), note="larger")
        yield Case(cls(3, 3, images=2), (noise(7, 9), noise(7, 9, 1)), ("HWC", "HWC"), note="with-mask")


@keywords_after("write the size as one, (height, width)")
def center_crop(image: T, size: Any) -> T:
    """Crop the centre of `image`, `size` pixels, as torchvision's `CenterCrop`.

    Args:
        image: one image, a `Sample`, or a tuple of images of equal size.
        size: (height, width) in pixels, or one number for both. A smaller image gets zeros around it.

    Shapes: ``T[H,W,C]{HWC} -> T[height,width,C]{HWC}``

    Raises:
        SpecError: `image` is not an image, or a size is below 1.

    Example:
        >>> center_crop(np.arange(5, dtype=np.uint8).reshape(1, 5, 1), (1, 2)).ravel()
        array([2, 3], dtype=uint8)
    """
    xs = images_of(image)
    return call(CenterCrop(*pair("center_crop", "size", size), images=len(xs)), image)  # type: ignore[no-any-return]
