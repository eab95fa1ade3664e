"""random_shortest_size: resize each image so that its shorter side has a length that is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, TypeVar, overload

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Case
from gpupipe.graph.symbols import Symbol
from gpupipe.integers import is_integer, plain
from gpupipe.ops._shared.composite import call
from gpupipe.ops._shared.geometry import check_sides, column, images_of, one_per_image, several
from gpupipe.ops._shared.samples import noise
from gpupipe.ops._shared.scaling import Scaling, ring_case
from gpupipe.random import BatchRng

__all__ = ["RandomShortestSize", "random_shortest_size"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomShortestSize(Scaling):
    """Resize so that the shorter side has one of some lengths and the longer one at most another, as torchvision does.

    Both sides are truncated products with one factor, in float64 as torchvision's are, and at least 1.

    Attributes:
        min_size: the lengths that the shorter side may get, in pixels, each equally likely.
        max_size: most pixels of the longer side; None for no limit.
    """

    random: ClassVar[bool] = True
    drawn: ClassVar[Literal["", "window", "flag", "size"]] = "size"
    traceable: ClassVar[tuple[str, ...]] = ("min_size", "max_size")

    min_size: tuple[Any, ...]
    max_size: Any = None

    def __post_init__(self) -> None:
        if not self.min_size:
            raise SpecError(f"{self.name} needs a length for min_size, or several to draw from, got none")
        check_sides(self, "min_size", several=True)
        check_sides(self, "max_size", optional=True)
        Scaling.__post_init__(self)

    def scaled(self, rng: BatchRng, hw: Array) -> Array:
        count = len(hw)
        lengths = np.stack([column(length, count) for length in self.min_size], axis=1)
        length = np.take_along_axis(lengths, rng.integers(0, len(self.min_size))[:, None], axis=1)[:, 0]
        factor = length / hw.min(axis=1)
        if self.max_size is not None:
            factor = np.minimum(factor, column(self.max_size, count) / hw.max(axis=1))
        made: Array = hw * factor[:, None]
        return made

    @classmethod
    def cases(cls) -> Iterator[Case]:
        yield from cls.scaled_cases((20, 24, 30), 44)
        yield ring_case(cls((24,)), noise(61, 83), "one")
        yield ring_case(cls((2, 3), 30), noise(3, 90), "narrow")


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
    image: Any,
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
    one = is_integer(min_size) or isinstance(min_size, Symbol)
    lengths = (
        (min_size,) if one else several("random_shortest_size", "min_size", min_size, "an integer or a list of them")
    )
    methods = one_per_image("random_shortest_size", "interpolation", interpolation, image)
    op = RandomShortestSize(lengths, max_size, interpolation=methods, antialias=antialias, images=len(xs))
    return call(op, image, seed, return_params)
