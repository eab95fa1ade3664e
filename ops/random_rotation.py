"""random_rotation: turn an image by a random angle, as torchvision does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeVar

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.ops._shared.affine import numbers_of, spread
from gpupipe.ops._shared.composite import call
from gpupipe.ops._shared.geometry import column
from gpupipe.ops._shared.warp import warp_settings
from gpupipe.ops.rotate import Rotation
from gpupipe.random import BatchRng

__all__ = ["RandomRotation", "random_rotation"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomRotation(Rotation):
    """Rotate the image by an angle between two bounds. Executors differ as `Warp` says.

    Attributes:
        degrees: bounds of the angle, counter-clockwise.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, with `expand` ``T[h,w,C]``; for each of the images.
    """

    random: ClassVar[bool] = True
    traceable: ClassVar[tuple[str, ...]] = ("degrees", "center")

    degrees: tuple[Any, Any] = (0.0, 0.0)

    def __post_init__(self) -> None:
        for name, values in (("degrees", self.degrees), ("center", self.center or ())):
            for value in values:
                check_number("random_rotation", name, value, -1e6, 1e6)

    def angles(self, rng: BatchRng, count: int) -> Array:
        low, high = (column(bound, count, "float64") for bound in self.degrees)
        angles: Array = low + rng.uniform() * (high - low)
        return angles

    @classmethod
    def cases(cls) -> Iterator[Case]:
        yield from cls.warped_cases(degrees=(-40.0, 40.0))
        yield from cls.warped_cases(True, degrees=(0.0, 360.0), note="expand")


def random_rotation(
    image: T,
    degrees: Any,
    interpolation: str | Sequence[str] = "nearest",
    expand: bool = False,
    center: Sequence[Any] | None = None,
    fill: Any = 0,
    *,
    seed: int | None = None,
) -> T:
    """Rotate `image` by a random angle, as torchvision's `RandomRotation`.

    Args:
        image: see `affine`, like `interpolation` and `fill`, and what is said there about the border.
        degrees: d >= 0 for -d to d degrees counter-clockwise, or the two bounds.
        interpolation: "nearest" or "bilinear"; for several images it may be one per image.
        expand: make the result as large as the rotated image; else it has the image's size.
        center: (x, y) in pixels from the upper left corner; None for the middle of the image.
        fill: what comes from outside the image: a number, or one per channel; for several images one number, or such a
            fill per image.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, with `expand` ``T[h,w,C]``; integers are rounded.

    Raises:
        SpecError: `image` is not an image, a number is out of range, or `fill` does not fit the image.

    Example:
        >>> random_rotation(np.zeros((50, 80, 3), np.uint8), 15).shape
        (50, 80, 3)
    """
    op = RandomRotation(
        expand,
        None if center is None else numbers_of("random_rotation", "center", center, 2),
        spread("random_rotation", "degrees", degrees),
        **warp_settings("random_rotation", image, interpolation, fill),
    )
    return call(op, image, seed)  # type: ignore[no-any-return]
