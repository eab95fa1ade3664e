"""rotate: turn an image by an angle, as torchvision does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.integers import plain
from gpupipe.ops._shared.affine import expanded, inverse_affine, numbers_of
from gpupipe.ops._shared.composite import call
from gpupipe.ops._shared.warp import Warping, warp_settings
from gpupipe.random import BatchRng

__all__ = ["Rotate", "Rotation", "rotate"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rotation(Warping):
    """Base of the ops that rotate. Subclasses define `angles`.

    Attributes:
        expand: whether the result is as large as the rotated image.
        center: (x, y) in pixels from the corner; None for the middle.
    """

    parameters: ClassVar[tuple[str, ...]] = ("matrix", "size")

    expand: bool = False
    center: tuple[Any, Any] | None = None

    @property
    def expands(self) -> bool:
        return self.expand

    def angles(self, rng: BatchRng, count: int) -> Any:
        """Degrees counter-clockwise: a number, or float64[B]."""
        raise TypeError(f"{type(self).__name__} does not define angles")

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        angle = -np.asarray(self.angles(rng, len(hw)), np.float64)
        size = expanded(hw, angle, self.center) if self.expand else hw.astype(np.int32)
        return inverse_affine(hw, angle, center=self.center, size=size), size


@dataclass(frozen=True, slots=True)
class Rotate(Rotation):
    """Rotate the image counter-clockwise around a point.

    Executors differ as `Warp` says. A number of quarter turns around the middle of a square is exact.

    Attributes:
        angle: degrees.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, with `expand` ``T[h,w,C]``; for each of the images.
    """

    traceable: ClassVar[tuple[str, ...]] = ("angle", "center")

    angle: Any = 0.0

    def __post_init__(self) -> None:
        check_number("rotate", "angle", self.angle)
        for value in self.center or ():
            check_number("rotate", "center", value, -1e6, 1e6)

    def angles(self, rng: BatchRng, count: int) -> Any:
        return self.angle

    @classmethod
    def cases(cls) -> Iterator[Case]:
        yield from cls.warped_cases(angle=35.0)
        yield from cls.warped_cases(True, angle=-100.0, note="expand")
        yield from cls.warped_cases(False, (2.0, 5.5), angle=200.0, note="center")


def rotate(
    image: T,
    angle: Any,
    interpolation: str | Sequence[str] = "nearest",
    expand: bool = False,
    center: Sequence[Any] | None = None,
    fill: Any = 0,
) -> T:
    """Rotate `image` counter-clockwise, as torchvision's function `rotate`. `rot90` does quarter turns, cheaper.

    Args:
        image: see `affine`, like `interpolation` and `fill`, and what is said there about the border.
        angle: degrees; a number or a traced host value.
        interpolation: "nearest" or "bilinear"; for several images it may be one per image.
        expand: make the result as large as the rotated image, which it then holds all of; else it has the image's size.
        center: (x, y) in pixels from the upper left corner; None for the middle of the image.
        fill: what comes from outside the image: a number, or one per channel; for several images one number, or such a
            fill per image.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, with `expand` ``T[h,w,C]``; integers are rounded.

    Raises:
        SpecError: `image` is not an image, a number is out of range, or `fill` does not fit the image.

    Example:
        >>> rotate(np.uint8([[[1], [2]], [[3], [4]]]), 90)[:, :, 0]
        array([[2, 4],
               [1, 3]], dtype=uint8)
    """
    op = Rotate(
        expand,
        None if center is None else numbers_of("rotate", "center", center, 2),
        plain(angle),
        **warp_settings("rotate", image, interpolation, fill),
    )
    return call(op, image)  # type: ignore[no-any-return]
