"""resize_shorter: resize each image so that its shorter side has a given length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Case
from gpupipe.ops._shared.composite import call
from gpupipe.ops._shared.geometry import check_sides, column, images_of, one_per_image, static
from gpupipe.ops._shared.samples import noise
from gpupipe.ops._shared.scaling import Scaling, ring_case
from gpupipe.random import BatchRng

__all__ = ["ResizeShorter", "resize_shorter"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ResizeShorter(Scaling):
    """Resize so that the shorter side is `length`, keeping the aspect ratio, as torchvision's `Resize(int)`.

    The longer side becomes int(length * longer / shorter). Where that is more than `max_size`, it becomes `max_size`,
    and the shorter one int(max_size * length / that), as torchvision's `Resize(int, max_size=)`.

    Attributes:
        length: of the shorter side, in pixels; None if the longer side is always `max_size`.
        max_size: most pixels of the longer side; None for no limit.
    """

    traceable: ClassVar[tuple[str, ...]] = ("length", "max_size")

    length: Any
    max_size: Any = None

    def __post_init__(self) -> None:
        check_sides(self, "length", optional=self.max_size is not None)
        check_sides(self, "max_size", optional=True)
        length, most = static(self.length), static(self.max_size)
        if length is not None and most is not None and most <= length:
            raise SpecError(f"{self.name} needs max_size above the length of the shorter side {length}, got {most}")
        Scaling.__post_init__(self)

    def scaled(self, rng: BatchRng, hw: Array) -> Array:
        short, long = hw.min(axis=1), hw.max(axis=1)
        most = None if self.max_size is None else column(self.max_size, len(hw))
        if self.length is None:
            made = [most * short / long, most]
        else:
            made = [length := column(self.length, len(hw)), np.floor(length * long / short)]
            if most is not None:
                limited = made[1] > most
                made = [np.where(limited, most * length / made[1], length), np.where(limited, most, made[1])]
        sizes: Array = np.stack(made, axis=1)
        return np.where((hw[:, :1] <= hw[:, 1:]), sizes, sizes[:, ::-1])

    @classmethod
    def cases(cls) -> Iterator[Case]:
        yield from cls.scaled_cases(24)
        yield ring_case(cls(24, 30), noise(61, 83), "limited")
        yield ring_case(cls(24, 30), noise(83, 75), "tall")
        yield ring_case(cls(None, 30), noise(61, 83), "longer")


def resize_shorter(
    image: T, size: Any, interpolation: Any = "bilinear", *, max_size: Any = None, antialias: bool = True
) -> T:
    """Resize `image` so that its shorter side is `size`, as torchvision's `Resize(size, max_size=)`.

    Args:
        image: one image, a `Sample`, or a tuple of images of equal size.
        size: of the shorter side, in pixels; a number or a traced host value. None if `max_size` alone says it.
        interpolation: "bilinear", "bicubic", "lanczos3" or "nearest"; for several images it may be one per image.
        max_size: most pixels of the longer side, more than `size`; a number or a traced host value. An image that would
            be longer gets that length, and a shorter side by its aspect ratio; without `size` every image does.
        antialias: average over all source pixels when shrinking.

    Shapes: ``T[H,W,C]{HWC} -> T[h,w,C]{HWC}``; integers are rounded. Sides that are not given are truncated, and at
        least 1.

    Raises:
        SpecError: `image` is not an image, or a parameter is out of range.

    Example:
        >>> resize_shorter(np.zeros((100, 333, 3), np.uint8), 50).shape
        (50, 166, 3)
        >>> resize_shorter(np.zeros((100, 333, 3), np.uint8), 50, max_size=120).shape
        (36, 120, 3)
    """
    xs = images_of(image)
    methods = one_per_image("resize_shorter", "interpolation", interpolation, image)
    return call(ResizeShorter(size, max_size, interpolation=methods, antialias=antialias, images=len(xs)), image)  # type: ignore[no-any-return]
