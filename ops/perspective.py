"""perspective: look at an image from another side, as torchvision does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.ops._shared.affine import numbers_of
from gpupipe.ops._shared.composite import call
from gpupipe.ops._shared.geometry import GeometryError, column
from gpupipe.ops._shared.homography import Homography, homographies
from gpupipe.ops._shared.warp import Warp, Warping, warp_settings
from gpupipe.random import BatchRng

__all__ = ["Perspective", "perspective"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Perspective(Warping):
    """Move four points of the image to where they are given, and keep lines straight.

    Executors differ as `Homography` says.

    Attributes:
        points: x and y of the four points in the image, then of the same points in the result; or the eight
            coefficients of the map.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, for each of the images.
    """

    part: ClassVar[type[Warp]] = Homography
    traceable: ClassVar[tuple[str, ...]] = ("points",)

    points: tuple[Any, ...] = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        for value in self.points:
            check_number("perspective", "points", value, -1e6, 1e6)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        numbers = np.stack([column(value, len(hw), np.float64) for value in self.points], axis=1)
        if len(self.points) == 8:
            last = np.ones((len(hw), 1))
            return (np.concatenate([numbers, last], axis=1).reshape(-1, 3, 3).astype(np.float32),)
        start, end = numbers.reshape(-1, 2, 4, 2).transpose(1, 0, 2, 3)
        matrices, found = homographies(start, end)
        if not found.all():
            reason = "perspective needs points of which no three lie on a line"
            raise GeometryError.of_rows(dict.fromkeys(np.flatnonzero(~found).tolist(), reason))
        return (matrices,)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        corners = (0, 0, 16, 0, 16, 12, 0, 12)
        yield from cls.warped_cases((*corners, 2.3, 1.1, 13.2, 0.3, 15.7, 11.9, 1.2, 9.4))
        yield from cls.warped_cases((1.1, 0.1, -1.23, 0.05, 0.9, 2.02, 0.002, 0.003), note="coefficients")


def perspective(
    image: T,
    startpoints: Sequence[Sequence[Any]] | None = None,
    endpoints: Sequence[Sequence[Any]] | None = None,
    interpolation: str | Sequence[str] = "bilinear",
    fill: Any = 0,
    coefficients: Sequence[Any] | None = None,
) -> T:
    """Move four points of `image` to where they are given, as torchvision's function `perspective`.

    Args:
        image: one image of 1, 3 or 4 channels, of uint8, int8, uint16, int16 or float32, a `Sample`, or a tuple of
            images of equal size.
        startpoints: four points (x, y) of the image; as `endpoints` and `coefficients`, numbers or traced host values.
        endpoints: where they are in the result.
        interpolation: "nearest" or "bilinear"; for several images it may be one per image.
        fill: what comes from outside the image: a number, or one per channel; for several images one number, or such a
            fill per image. See `affine` about the border.
        coefficients: instead of points, a to h of the map from the result (x, y) to the image, in pixels from the
            corner: ``(a x + b y + c, d x + e y + f) / (g x + h y + 1)``.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``; integers are rounded.

    Raises:
        SpecError: `image` is not an image, a number is out of range, or `fill` does not fit the image.
        ShapeError: at run time: three points lie on a line.

    Example:
        >>> corners = [(0, 0), (2, 0), (2, 1), (0, 1)]
        >>> perspective(np.uint8([[[1], [2], [3]]]), corners, [(1, 0), (3, 0), (3, 1), (1, 1)], fill=9).ravel()
        array([9, 1, 2], dtype=uint8)
    """
    if (startpoints is None) is not (endpoints is None) or (startpoints is None) is (coefficients is None):
        raise SpecError("perspective needs either startpoints and endpoints, or coefficients")
    if coefficients is not None:
        points = numbers_of("perspective", "coefficients", coefficients, 8)
    else:
        points = (*_corners("startpoints", startpoints), *_corners("endpoints", endpoints))
    op = Perspective(points, **warp_settings("perspective", image, interpolation, fill, Homography))
    return call(op, image)  # type: ignore[no-any-return]


def _corners(name: str, points: Any) -> tuple[Any, ...]:
    if not isinstance(points, (tuple, list, np.ndarray)) or len(points) != 4:
        raise PlanTypeError(f"perspective needs {name} as four points (x, y), got {points!r}")
    return tuple(number for point in points for number in numbers_of("perspective", f"a point of {name}", point, 2))
