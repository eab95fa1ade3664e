"""resize_shorter: resize each image so that its shorter side has a given length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case
from gpupipe.ops._shared.composite import call
from gpupipe.ops._shared.geometry import check_sides, column, images_of, one_per_image
from gpupipe.ops._shared.scaling import Scaling
from gpupipe.random import BatchRng

__all__ = ["ResizeShorter", "resize_shorter"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ResizeShorter(Scaling):
    """Resize so that the shorter side is `length`, keeping the aspect ratio, as torchvision's `Resize(int)`.

    The longer side becomes int(length * longer / shorter).

    Attributes:
        length: of the shorter side, in pixels.
    """

    traceable: ClassVar[tuple[str, ...]] = ("length",)

    length: Any

    def __post_init__(self) -> None:
        check_sides(self, "length")
        Scaling.__post_init__(self)

    def scaled(self, rng: BatchRng, hw: Array) -> Array:
        made: Array = column(self.length, len(hw))[:, None] * hw / hw.min(axis=1, keepdims=True)
        return made

    @classmethod
    def cases(cls) -> Iterator[Case]:
        yield from cls.scaled_cases(24)


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
    return call(ResizeShorter(size, interpolation=methods, antialias=antialias, images=len(xs)), image)  # type: ignore[no-any-return]
