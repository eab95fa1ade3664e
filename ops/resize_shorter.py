"""resize_shorter: resize each image so that its shorter side has a given length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.ops._shared.composite import Composite, Row, call
from gpupipe.ops._shared.geometry import GeometryError, column, images_of, one_per_image
from gpupipe.ops._shared.samples import noise
from gpupipe.ops.resize import Resize, check_methods
from gpupipe.random import BatchRng

__all__ = ["ResizeShorter", "resize_shorter"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ResizeShorter(Composite):
    """Resize so that the shorter side is `length`, keeping the aspect ratio, as torchvision's `Resize(int)`.

    The longer side becomes int(length * longer / shorter). Executors differ as for `Resize` with antialias.

    Attributes:
        length: of the shorter side, in pixels.
        interpolation: one method per image.
        antialias: average over all source pixels when shrinking.

    Shapes: ``T[H,W,C]{HWC} -> T[h,w,C]{HWC}``, for each of the images.
    """

    parameters: ClassVar[tuple[str, ...]] = ("size",)
    traceable: ClassVar[tuple[str, ...]] = ("length",)

    length: Any
    interpolation: tuple[str, ...] = ("bilinear",)
    antialias: bool = True

    def __post_init__(self) -> None:
        check_number("resize_shorter", "length", self.length, 1, 1 << 24, integer=True)
        check_methods("resize_shorter", self.interpolation, self.images)

    def row(self, image: int = 0) -> Row:
        method = self.interpolation[image]
        return ((Resize(method=method, antialias=self.antialias, keep_dtype=True), (0,)),)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        length = column(self.length, len(hw))
        bad = np.flatnonzero(length < 1).tolist()
        if bad:
            raise GeometryError.of_rows(
                {row: f"{self.name} needs a length of 1 or more, got {length[row]}" for row in bad}
            )
        size: Array = length[:, None] * hw / hw.min(axis=1, keepdims=True)
        return (size.astype(np.int32),)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        ring = "DALI repeats edge pixels, Pillow ignores what lies outside: only the outermost ring differs"
        for x in (noise(61, 83), noise(83, 50, 1), noise(40, 40, dtype="float32"), noise(20, 15)):
            yield Case(cls(24), (x,), ("HWC",), atol=1, ring=18, reason=ring)
        mask = noise(61, 83, 1)
        yield Case(cls(24, ("nearest", "nearest"), images=2), (noise(61, 83), mask), ("HWC", "HWC"), note="with-mask")


def resize_shorter(image: T, size: Any, interpolation: Any = "bilinear", *, antialias: bool = True) -> T:
    """Resize `image` so that its shorter side is `size`, as torchvision's `Resize(size)`.

    Args:
        image: one image, a `Sample`, or a tuple of images of equal size.
        size: of the shorter side, in pixels; a number or a traced host value.
        interpolation: "bilinear", "bicubic", "lanczos3" or "nearest"; for several images it may be one per image.
        antialias: average over all source pixels when shrinking.

    Shapes: ``T[H,W,C]{HWC} -> T[h,w,C]{HWC}``; integers are rounded.

    Raises:
        SpecError: `image` is not an image, or a parameter is out of range.

    Example:
        >>> resize_shorter(np.zeros((100, 333, 3), np.uint8), 50).shape
        (50, 166, 3)
    """
    xs = images_of(image)
    methods = one_per_image("resize_shorter", "interpolation", interpolation, image)
    return call(ResizeShorter(size, methods, antialias, images=len(xs)), image)  # type: ignore[no-any-return]
