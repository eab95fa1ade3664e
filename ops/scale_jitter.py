"""scale_jitter: resize each image to a random multiple of what fits a size: large scale jitter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, TypeVar, overload

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import MOST_FACTOR, Array, Case, check_number
from gpupipe.ops._shared.composite import call
from gpupipe.ops._shared.geometry import check_sides, column, images_of, one_per_image, pair, smallest_and_largest
from gpupipe.ops._shared.samples import noise
from gpupipe.ops._shared.scaling import Scaling, ring_case
from gpupipe.random import BatchRng

__all__ = ["ScaleJitter", "scale_jitter"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ScaleJitter(Scaling):
    """Resize the image by a random multiple of the factor with which it fits `width` x `height`, as torchvision does.

    Both sides are truncated products with one factor, in float32 as torchvision's are, and at least 1.

    Attributes:
        width: of the size that the image fits at a scale of 1, in pixels.
        height: as `width`.
        scale: smallest and largest multiple, above 0.
    """

    random: ClassVar[bool] = True
    drawn: ClassVar[Literal["", "window", "flag", "size"]] = "size"
    traceable: ClassVar[tuple[str, ...]] = ("width", "height", "scale")

    width: Any
    height: Any
    scale: tuple[Any, Any] = (0.1, 2.0)

    def __post_init__(self) -> None:
        check_sides(self, "width", "height")
        for bound in self.scale:
            check_number(self.name, "scale_range", bound, 1e-6, MOST_FACTOR)
        if all(isinstance(bound, (int, float)) for bound in self.scale) and self.scale[0] > self.scale[1]:
            raise SpecError(f"{self.name} needs scale_range from small to large, got {self.scale}")
        Scaling.__post_init__(self)

    def scaled(self, rng: BatchRng, hw: Array) -> Array:
        low, high = (column(bound, len(hw), np.float64) for bound in self.scale)
        scale = rng.uniform().astype(np.float32) * (high - low).astype(np.float32) + low.astype(np.float32)
        fits = np.stack([column(self.height, len(hw)), column(self.width, len(hw))], axis=1) / hw
        factor = fits.min(axis=1).astype(np.float32) * scale
        made: Array = hw.astype(np.float32) * factor[:, None]
        return made

    @classmethod
    def cases(cls) -> Iterator[Case]:
        yield from cls.scaled_cases(50, 40, (0.3, 2.0))
        yield ring_case(cls(9, 7, (0.1, 0.2)), noise(3, 40), "a line")


@overload
def scale_jitter(
    image: T,
    target_size: Any,
    scale_range: Sequence[Any] = (0.1, 2.0),
    interpolation: str | Sequence[str] = "bilinear",
    *,
    antialias: bool = True,
    seed: int | None = None,
    return_params: Literal[False] = False,
) -> T: ...


@overload
def scale_jitter(
    image: T,
    target_size: Any,
    scale_range: Sequence[Any] = (0.1, 2.0),
    interpolation: str | Sequence[str] = "bilinear",
    *,
    antialias: bool = True,
    seed: int | None = None,
    return_params: Literal[True],
) -> tuple[T, Any]: ...


def scale_jitter(
    image: Any,
    target_size: Any,
    scale_range: Sequence[Any] = (0.1, 2.0),
    interpolation: str | Sequence[str] = "bilinear",
    *,
    antialias: bool = True,
    seed: int | None = None,
    return_params: bool = False,
) -> Any:
    """Resize `image` to a random multiple of the size in which it fits `target_size`, as torchvision's `ScaleJitter`.

    For large scale jitter, bring the results to one size: by `pad` and `random_crop`, say.

    Args:
        image: one image, a `Sample`, or a tuple of images of equal size (say, with a mask), which get one size.
        target_size: (width, height) in pixels, in torchvision's order here, or one number for both; numbers or traced
            host values.
        scale_range: bounds of the multiple, above 0: at 1 the image fits `target_size`. May be traced.
        interpolation: "bilinear", "bicubic", "lanczos3" or "nearest"; for several images it may be one per image.
        antialias: average over all source pixels when shrinking.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.
        return_params: also return the size of the result, int32[2] (height, width), as a pair with it: to move boxes
            with it, say.

    Shapes: ``T[H,W,C]{HWC} -> T[h,w,C]{HWC}``; integers are rounded. Both sides are truncated products of the image's
        with one factor, and at least 1 (torchvision fails there).

    Raises:
        SpecError: `image` is not an image, or a parameter is out of range.

    Example:
        >>> scale_jitter(np.zeros((50, 80, 3), np.uint8), (40, 40), (1, 1)).shape
        (25, 40, 3)
    """
    xs = images_of(image)
    width, height = pair("scale_jitter", "target_size", target_size)
    bounds = smallest_and_largest("scale_jitter", "scale_range", scale_range)
    methods = one_per_image("scale_jitter", "interpolation", interpolation, image)
    op = ScaleJitter(width, height, bounds, interpolation=methods, antialias=antialias, images=len(xs))
    return call(op, image, seed, return_params)
