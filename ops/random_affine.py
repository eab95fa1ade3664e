"""random_affine: rotate, shift, scale and shear an image at random, as torchvision does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import MOST_FACTOR, Array, Case, check_number
from gpupipe.integers import is_integer, plain
from gpupipe.ops._shared.affine import inverse_affine, numbers_of, spread
from gpupipe.ops._shared.composite import call
from gpupipe.ops._shared.geometry import column
from gpupipe.ops._shared.warp import Warping, warp_settings
from gpupipe.random import BatchRng

__all__ = ["RandomAffine", "random_affine"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomAffine(Warping):
    """Shear, scale, rotate and shift the image by random numbers, drawn exactly as torchvision's are.

    Executors differ as `Warp` says.

    Attributes:
        degrees: bounds of the angle, clockwise.
        translate: largest shifts as shares of width and height, 0..1.
        scale: bounds of the factor, above 0.
        shear: bounds of the shear in degrees, along x and along y.
        center: (x, y) in pixels from the corner; None for the middle.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, for each of the images.
    """

    random: ClassVar[bool] = True
    traceable: ClassVar[tuple[str, ...]] = ("degrees", "translate", "scale", "shear", "center")

    degrees: tuple[Any, Any] = (0.0, 0.0)
    translate: tuple[Any, Any] = (0.0, 0.0)
    scale: tuple[Any, Any] = (1.0, 1.0)
    shear: tuple[Any, Any, Any, Any] = (0.0, 0.0, 0.0, 0.0)
    center: tuple[Any, Any] | None = None

    def __post_init__(self) -> None:
        who = "random_affine"
        for name, values, low, high in (
            ("degrees", self.degrees, -1e6, 1e6),
            ("translate", self.translate, 0, 1),
            ("scale", self.scale, 1e-3, MOST_FACTOR),
            ("shear", self.shear, -1e6, 1e6),
            ("center", self.center or (), -1e6, 1e6),
        ):
            for value in values:
                check_number(who, name, value, low, high)
        if all(isinstance(bound, (int, float)) for bound in self.scale) and self.scale[0] > self.scale[1]:
            raise SpecError(f"{who} needs scale from small to large, got {self.scale}")

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        u = rng.uniform(6)

        def between(number: int, low: Any, high: Any) -> Array:
            first, last = column(low, len(hw), np.float64), column(high, len(hw), np.float64)
            drawn: Array = first + u[:, number] * (last - first)
            return drawn

        angle = between(0, *self.degrees)
        across, down = (column(share, len(hw), np.float64) for share in self.translate)
        right, below = across * hw[:, 1], down * hw[:, 0]
        shift = np.rint(between(1, -right, right)), np.rint(between(2, -below, below))
        factor = between(3, *self.scale)
        shear = between(4, *self.shear[:2]), between(5, *self.shear[2:])
        return (inverse_affine(hw, angle, shift, factor, shear, self.center),)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        yield from cls.warped_cases((-30.0, 30.0), (0.2, 0.1), (0.5, 1.5), (-10.0, 10.0, -5.0, 5.0))


def random_affine(
    image: T,
    degrees: Any,
    translate: Sequence[Any] | None = None,
    scale: Sequence[Any] | None = None,
    shear: Any = None,
    interpolation: str | Sequence[str] = "nearest",
    fill: Any = 0,
    center: Sequence[Any] | None = None,
    *,
    seed: int | None = None,
) -> T:
    """Rotate, shift, scale and shear `image` at random, as torchvision's `RandomAffine`.

    Args:
        image: see `affine`, like `interpolation` and `fill`, and what is said there about the border.
        degrees: d >= 0 for -d to d degrees clockwise, or the two bounds; 0 to leave it out.
        translate: largest shifts as shares of the width and the height, 0..1; whole pixels are drawn.
        scale: bounds of the factor.
        shear: s >= 0 for -s to s degrees along x; two bounds along x; or four, along x and then y.
        interpolation: "nearest" or "bilinear"; for several images it may be one per image.
        fill: what comes from outside the image: a number, or one per channel; for several images one number, or such a
            fill per image.
        center: (x, y) in pixels from the upper left corner; None for the middle of the image.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``; integers are rounded.

    Raises:
        SpecError: `image` is not an image, a number is out of range, or `fill` does not fit the image.

    Example:
        >>> random_affine(np.zeros((50, 80, 3), np.uint8), 15, translate=(0.1, 0.1), scale=(0.8, 1.2)).shape
        (50, 80, 3)
    """
    who = "random_affine"
    op = RandomAffine(
        spread(who, "degrees", degrees),
        (0.0, 0.0) if translate is None else numbers_of(who, "translate", translate, 2),
        (1.0, 1.0) if scale is None else numbers_of(who, "scale", scale, 2),
        _shears(shear),
        None if center is None else numbers_of(who, "center", center, 2),
        **warp_settings(who, image, interpolation, fill),
    )
    return call(op, image, seed)  # type: ignore[no-any-return]


def _shears(shear: Any) -> tuple[Any, Any, Any, Any]:
    """Bounds along x and along y from what torchvision takes."""
    shear = plain(shear)
    if shear is None:
        return 0.0, 0.0, 0.0, 0.0
    if is_integer(shear) or isinstance(shear, (float, np.floating)) or len(shear) == 2:
        return *spread("random_affine", "shear", shear), 0.0, 0.0
    a, b, c, d = numbers_of("random_affine", "shear", shear, 4)
    return *spread("random_affine", "shear", (a, b)), *spread("random_affine", "shear", (c, d))
