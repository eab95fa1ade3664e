"""random_resized_crop: crop a random window and resize it, the usual augmentation of ImageNet training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, TypeVar, overload

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.ops._shared.composite import Composite, Row, call
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.geometry import (
    check_sides,
    column,
    full,
    images_of,
    one_per_image,
    pair,
    smallest_and_largest,
    window,
    windows_inside,
)
from gpupipe.ops._shared.keywords import keywords_after
from gpupipe.ops._shared.samples import noise
from gpupipe.ops.resize import Resize, check_methods
from gpupipe.random import BatchRng

__all__ = ["RandomResizedCrop", "crop_windows", "random_resized_crop"]

T = TypeVar("T")

ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class RandomResizedCrop(Composite):
    """Crop a window of random area and aspect ratio, then resize it, drawing exactly as torchvision does.

    Executors differ as for `Resize` with antialias: within 1 inside, 18 on the outermost ring.

    Attributes:
        height: of the result, in pixels.
        width: of the result.
        scale: smallest and largest share of the image's area, above 0, up to 1.
        ratio: smallest and largest width / height, above 0.
        interpolation: one method per image.
        antialias: average over all source pixels when shrinking.

    Shapes: ``T[H,W,C]{HWC} -> T[h,w,C]{HWC}``, for each of the images.
    """

    random: ClassVar[bool] = True
    drawn: ClassVar[Literal["", "window", "flag"]] = "window"
    parameters: ClassVar[tuple[str, ...]] = ("start", "shape", "size")
    traceable: ClassVar[tuple[str, ...]] = ("height", "width", "scale", "ratio")

    height: Any
    width: Any
    scale: tuple[Any, Any] = (0.08, 1.0)
    ratio: tuple[Any, Any] = (3 / 4, 4 / 3)
    interpolation: tuple[str, ...] = ("bilinear",)
    antialias: bool = True

    def __post_init__(self) -> None:
        who = "random_resized_crop"
        check_sides(self, "height", "width")
        for name, bounds, most in (("scale", self.scale, 1), ("ratio", self.ratio, None)):
            for bound in bounds:
                check_number(who, name, bound, 1e-6, most)
            if all(isinstance(bound, (int, float)) for bound in bounds) and bounds[0] > bounds[1]:
                raise SpecError(f"{who} needs {name} from small to large, got {bounds}")
        check_methods(who, self.interpolation, self.images)

    def row(self, image: int = 0) -> Row:
        how: Any = {"antialias": self.antialias, "keep_dtype": True, "stage": self.name}
        resize = Resize(self.height, self.width, self.interpolation[image], **how)
        return (Crop(), (0, 1)), (resize, (2,))

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        start, shape = crop_windows(rng.uniform(2 * ATTEMPTS + 2), hw, self.scale, self.ratio)
        return *windows_inside(self.name, hw, start, shape), full(self.height, self.width, len(hw))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        ring = "DALI repeats edge pixels, Pillow ignores what lies outside: only the outermost ring differs"
        for x in (noise(61, 83), noise(90, 44, 1), noise(40, 40).astype(np.float32)):
            yield Case(cls(24, 31), (x,), ("HWC",), atol=1, ring=18, reason=ring)
        yield Case(cls(9, 7, scale=(1.0, 1.0)), (noise(3, 40),), ("HWC",), atol=1, ring=18, reason=ring, note="whole")
        steps = "float32 sums next to n + 0.5 round to either side, after each axis"
        yield Case(
            cls(24, 31, interpolation=("bicubic",)), (noise(61, 83),), ("HWC",), atol=2, reason=steps, note="bicubic"
        )
        mask = noise(61, 83, 1)
        both = cls(24, 31, interpolation=("nearest", "nearest"), images=2)
        yield Case(both, (noise(61, 83), mask), ("HWC", "HWC"), note="with-mask")


def crop_windows(u: Array, hw: Array, scale: tuple[Any, Any], ratio: tuple[Any, Any]) -> tuple[Array, Array]:
    """Draw windows as torchvision does: up to 10 attempts, then the largest central window of a legal shape.

    Args:
        u: float64[B,22] in [0, 1): 10 areas, 10 shapes, then offsets y and x of the attempt that fits.
        hw: int32[B,2], sizes of the images.
        scale: bounds of the share of the area; numbers or arrays[B].
        ratio: bounds of width / height.

    Returns:
        Offsets and shapes, int32[B,2] each, (height, width).
    """
    count = len(hw)
    height, width = hw[:, :1].astype(np.float64), hw[:, 1:].astype(np.float64)
    low, high = (column(bound, count, np.float64)[:, None] for bound in scale)
    narrow, wide = (column(bound, count, np.float64)[:, None] for bound in ratio)
    area = height * width * (low + u[:, :ATTEMPTS] * (high - low))
    shape = np.exp(np.log(narrow) + u[:, ATTEMPTS : 2 * ATTEMPTS] * (np.log(wide) - np.log(narrow)))
    w, h = np.rint(np.sqrt(area * shape)), np.rint(np.sqrt(area / shape))  # half to even, as Python's round
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    first = fits.argmax(axis=1)[:, None]
    fitting = fits.any(axis=1, keepdims=True)

    own = width / height
    central_w = np.where(own > wide, np.rint(height * wide), width)
    central_h = np.where(own < narrow, np.rint(width / narrow), height)
    w = np.where(fitting, np.take_along_axis(w, first, 1), np.clip(central_w, 1, width))
    h = np.where(fitting, np.take_along_axis(h, first, 1), np.clip(central_h, 1, height))
    y = np.where(fitting, np.floor(u[:, -2:-1] * (height - h + 1)), (height - h) // 2)
    x = np.where(fitting, np.floor(u[:, -1:] * (width - w + 1)), (width - w) // 2)
    return window(y[:, 0], x[:, 0], h[:, 0], w[:, 0], count)


@overload
def random_resized_crop(
    image: T,
    size: Any,
    *,
    scale: Sequence[Any] = (0.08, 1.0),
    ratio: Sequence[Any] = (3 / 4, 4 / 3),
    interpolation: str | Sequence[str] = "bilinear",
    antialias: bool = True,
    seed: int | None = None,
    return_params: Literal[False] = False,
) -> T: ...


@overload
def random_resized_crop(
    image: T,
    size: Any,
    *,
    scale: Sequence[Any] = (0.08, 1.0),
    ratio: Sequence[Any] = (3 / 4, 4 / 3),
    interpolation: str | Sequence[str] = "bilinear",
    antialias: bool = True,
    seed: int | None = None,
    return_params: Literal[True],
) -> tuple[T, Any]: ...


@keywords_after("write the size as one, (height, width)")
def random_resized_crop(
    image: Any,
    size: Any,
    *,
    scale: Sequence[Any] = (0.08, 1.0),
    ratio: Sequence[Any] = (3 / 4, 4 / 3),
    interpolation: str | Sequence[str] = "bilinear",
    antialias: bool = True,
    seed: int | None = None,
    return_params: bool = False,
) -> Any:
    """Crop a random window of `image` and resize it, as torchvision's `RandomResizedCrop`.

    Args:
        image: one image, a `Sample`, or a tuple of images of equal size (say, with a mask), which share one window.
        size: (height, width) of the result in pixels, or one number for both.
        scale: bounds of the window's share of the area.
        ratio: bounds of the window's width / height.
        interpolation: "bilinear", "bicubic", "lanczos3" or "nearest"; for several images it may be one per image.
        antialias: average over all source pixels when shrinking.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.
        return_params: also return the window, int32[4] (y, x, height, width) in pixels of `image`, as a pair with the
            result: to move boxes with it, say.

    Shapes: ``T[H,W,C]{HWC} -> T[h,w,C]{HWC}``; integers are rounded.

    Raises:
        SpecError: `image` is not an image, or a parameter is out of range.

    Example:
        >>> random_resized_crop(np.zeros((50, 80, 3), np.uint8), 32).shape
        (32, 32, 3)
    """
    xs = images_of(image)
    height, width = pair("random_resized_crop", "size", size)
    methods = one_per_image("random_resized_crop", "interpolation", interpolation, image)
    shares = smallest_and_largest("random_resized_crop", "scale", scale)
    ratios = smallest_and_largest("random_resized_crop", "ratio", ratio)
    op = RandomResizedCrop(height, width, shares, ratios, methods, antialias, images=len(xs))
    return call(op, image, seed, return_params)
