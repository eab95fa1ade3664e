"""random_shortest_size: resize each image so that its shorter side has a length that is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, TypeVar, overload

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.integers import plain
from gpupipe.ops._shared.composite import Composite, Row, call
from gpupipe.ops._shared.geometry import check_pixels, column, images_of, one_per_image
from gpupipe.ops._shared.samples import noise
from gpupipe.ops.resize import Resize, check_methods
from gpupipe.random import BatchRng

__all__ = ["RandomShortestSize", "random_shortest_size"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomShortestSize(Composite):
    """Resize so that the shorter side has one of some lengths and the longer one at most another, as torchvision does.

    Both sides are truncated products with one factor, in float64 as torchvision's are, and at least 1. Executors differ
    as for `Resize` with antialias.

    Attributes:
        min_size: the lengths that the shorter side may get, in pixels, each equally likely.
        max_size: most pixels of the longer side; None for no limit.
        interpolation: one method per image.
        antialias: average over all source pixels when shrinking.

    Shapes: ``T[H,W,C]{HWC} -> T[h,w,C]{HWC}``, for each of the images.
    """

    random: ClassVar[bool] = True
    drawn: ClassVar[Literal["", "window", "flag", "size"]] = "size"
    parameters: ClassVar[tuple[str, ...]] = ("size",)
    traceable: ClassVar[tuple[str, ...]] = ("min_size", "max_size")

    min_size: tuple[Any, ...]
    max_size: Any = None
    interpolation: tuple[str, ...] = ("bilinear",)
    antialias: bool = True

    def __post_init__(self) -> None:
        if not self.min_size:
            raise SpecError(f"{self.name} needs a length for min_size, or several to draw from, got none")
        for length in self.min_size:
            check_number(self.name, "min_size", length, 1, 1 << 24, integer=True)
        if self.max_size is not None:
            check_number(self.name, "max_size", self.max_size, 1, 1 << 24, integer=True)
        check_methods(self.name, self.interpolation, self.images)

    def row(self, image: int = 0) -> Row:
        method = self.interpolation[image]
        return ((Resize(method=method, antialias=self.antialias, keep_dtype=True), (0,)),)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        check_pixels(self.name, hw)
        count = len(hw)
        lengths = np.stack([column(length, count) for length in self.min_size], axis=1)
        length = np.take_along_axis(lengths, rng.integers(0, len(self.min_size))[:, None], axis=1)[:, 0]
        factor = length / hw.min(axis=1)
        if self.max_size is not None:
            factor = np.minimum(factor, column(self.max_size, count) / hw.max(axis=1))
        return (np.maximum((hw * factor[:, None]).astype(np.int32), 1),)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        ring = "DALI repeats edge pixels, Pillow ignores what lies outside: only the outermost ring differs"
        for x in (noise(61, 83), noise(83, 50, 1), noise(40, 40, dtype="float32")):
            yield Case(cls((20, 24, 30), 44), (x,), ("HWC",), atol=1, ring=18, reason=ring)
        yield Case(cls((24,)), (noise(61, 83),), ("HWC",), atol=1, ring=18, reason=ring, note="one")
        yield Case(cls((2, 3), 30), (noise(3, 90),), ("HWC",), atol=1, ring=18, reason=ring, note="narrow")
        both = cls((20, 40), None, ("nearest", "nearest"), images=2)
        yield Case(both, (noise(61, 83), noise(61, 83, 1)), ("HWC", "HWC"), note="with-mask")


@overload
def random_shortest_size(
    image: T,
    min_size: int | Sequence[int],
    max_size: int | None = None,
    interpolation: str | Sequence[str] = "bilinear",
    *,
    antialias: bool = True,
    seed: int | None = None,
    return_params: Literal[False] = False,
) -> T: ...


@overload
def random_shortest_size(
    image: T,
    min_size: int | Sequence[int],
    max_size: int | None = None,
    interpolation: str | Sequence[str] = "bilinear",
    *,
    antialias: bool = True,
    seed: int | None = None,
    return_params: Literal[True],
) -> tuple[T, Any]: ...


def random_shortest_size(
    image: T,
    min_size: Any,
    max_size: Any = None,
    interpolation: str | Sequence[str] = "bilinear",
    *,
    antialias: bool = True,
    seed: int | None = None,
    return_params: bool = False,
) -> Any:
    """Resize `image` to a shorter side drawn from `min_size`, as torchvision's `RandomShortestSize`.

    Args:
        image: one image, a `Sample`, or a tuple of images of equal size (say, with a mask), which get one size.
        min_size: of the shorter side in pixels, or several to draw from: numbers or traced host values.
        max_size: most pixels of the longer side: an image that would be longer is made smaller as a whole. None for
            no limit.
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
        >>> random_shortest_size(np.zeros((100, 333, 3), np.uint8), 50, max_size=120).shape
        (36, 120, 3)
    """
    xs = images_of(image)
    min_size = plain(min_size)
    several = isinstance(min_size, (tuple, list)) or (isinstance(min_size, np.ndarray) and min_size.ndim == 1)
    lengths = tuple(min_size) if several else (min_size,)
    methods = one_per_image("random_shortest_size", "interpolation", interpolation, image)
    op = RandomShortestSize(lengths, max_size, methods, antialias, images=len(xs))
    return call(op, image, seed, return_params)
