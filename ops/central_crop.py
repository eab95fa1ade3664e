"""central_crop: crop the centre, a given fraction of height and width."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.ops._shared.composite import Composite, Row, call
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.geometry import column, images_of, window, windows_inside
from gpupipe.ops._shared.samples import noise
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

__all__ = ["CentralCrop", "central_crop"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CentralCrop(Composite):
    """Crop the centre: `fraction` of the height and of the width, rounded as in `tf.image`. Exact on every executor.

    Of n pixels, the first kept is int((n - n * fraction) / 2), and as many are cut off at the end.

    Shapes: ``T[H,W,C]{HWC} -> T[h,w,C]{HWC}``, for each of the images.
    """

    parameters: ClassVar[tuple[str, ...]] = ("start", "shape")
    traceable: ClassVar[tuple[str, ...]] = ("fraction",)

    fraction: Any

    def __post_init__(self) -> None:
        check_number("central_crop", "fraction", self.fraction, 0, 1)
        if isinstance(self.fraction, (int, float)) and self.fraction == 0:
            raise SpecError("central_crop needs fraction above 0, got 0")

    def row(self, image: int = 0) -> Row:
        return ((Crop(), (0, 1)),)

    def _infer(self, index: int, x: TensorSpec) -> TensorSpec:
        made = Composite._infer(self, index, x)
        assert x.shape is not None and made.shape is not None  # an image {HWC} has a rank
        if not isinstance(self.fraction, (int, float, np.number)) or None in x.shape[:2]:
            return made
        _, ((height, width),) = self._windows(np.array([x.shape[:2]]))
        return TensorSpec((int(height), int(width), made.shape[2]), made.dtype, made.layout)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return windows_inside(self.name, hw, *self._windows(hw))

    def _windows(self, hw: Array) -> tuple[Array, Array]:
        count = len(hw)
        start = ((hw - hw * column(self.fraction, count, np.float64)[:, None]) / 2).astype(np.int32)
        size = hw - 2 * start
        return window(start[:, 0], start[:, 1], size[:, 0], size[:, 1], count)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for fraction in (0.5, 0.875, 1.0, 0.01):
            for x in (noise(7, 9), noise(8, 5, 1), noise(1, 1, dtype="float32")):
                yield Case(cls(fraction), (x,), ("HWC",), note=f"{fraction}")


def central_crop(image: T, central_fraction: Any) -> T:
    """Crop the centre of `image`: a fraction of its height and of its width.

    Args:
        image: one image, a `Sample`, or a tuple of images of equal size.
        central_fraction: above 0, up to 1.

    Shapes: ``T[H,W,C]{HWC} -> T[h,w,C]{HWC}``

    Raises:
        SpecError: `image` is not an image, or the fraction is out of range.

    Example:
        >>> central_crop(np.zeros((7, 9, 3), np.uint8), 0.5).shape
        (5, 5, 3)
    """
    xs = images_of(image)
    return call(CentralCrop(central_fraction, images=len(xs)), image)  # type: ignore[no-any-return]
