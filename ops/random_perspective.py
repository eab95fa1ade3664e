"""random_perspective: look at an image from a random side, as torchvision does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.integers import plain
from gpupipe.ops._shared.composite import call
from gpupipe.ops._shared.geometry import column
from gpupipe.ops._shared.homography import Homography, homographies
from gpupipe.ops._shared.warp import Warp, Warping, warp_settings
from gpupipe.random import BatchRng

__all__ = ["RandomPerspective", "random_perspective"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomPerspective(Warping):
    """With probability `p`, move the corners of the image inside by random numbers of pixels, drawn as in torchvision.

    Executors differ as `Homography` says; an image that is left alone is equal.

    Attributes:
        distortion_scale: largest shift as a share of half the image, 0..1.
        p: probability, 0..1.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, for each of the images.
    """

    random: ClassVar[bool] = True
    part: ClassVar[type[Warp]] = Homography
    traceable: ClassVar[tuple[str, ...]] = ("distortion_scale", "p")

    distortion_scale: Any = 0.5
    p: Any = 0.5

    def __post_init__(self) -> None:
        for name in self.traceable:
            check_number("random_perspective", name, getattr(self, name), 0, 1)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        count = len(hw)
        u = rng.uniform(9)
        wh = hw[:, ::-1].astype(np.float64)
        most = np.floor(column(self.distortion_scale, count, np.float64)[:, None] * (wh // 2)) + 1
        inside = np.floor(u[:, 1:].reshape(count, 4, 2) * most[:, None])
        ends = np.array([(0, 0), (1, 0), (1, 1), (0, 1)])  # which corners are at the far end of an axis
        start = ends * (wh - 1)[:, None]
        end = np.where(ends == 1, (wh - most)[:, None] + inside, inside)
        matrices, found = homographies(start, end)
        matrices[~found | (u[:, 0] >= column(self.p, count, np.float64))] = np.eye(3)
        return (matrices,)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        yield from cls.warped_cases(0.6, 1.0)
        yield from cls.warped_cases(0.6, 0.0, note="never")


def random_perspective(
    image: T,
    distortion_scale: Any = 0.5,
    p: Any = 0.5,
    interpolation: str | Sequence[str] = "bilinear",
    fill: Any = 0,
    *,
    seed: int | None = None,
) -> T:
    """Look at `image` from a random side with probability `p`, as torchvision's `RandomPerspective`.

    Where three of the corners come to lie on a line, which small images have now and then, the image is left alone.

    Args:
        image: see `perspective`, like `interpolation` and `fill`.
        distortion_scale: how far corners move at most, as a share of half the image, 0..1; a number or a traced value.
        p: probability, 0..1; a number or a traced host value.
        interpolation: "nearest" or "bilinear"; for several images it may be one per image.
        fill: what comes from outside the image: a number, or one per channel; for several images one number, or such a
            fill per image.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``; integers are rounded.

    Raises:
        SpecError: `image` is not an image, a number is out of range, or `fill` does not fit the image.

    Example:
        >>> random_perspective(np.zeros((50, 80, 3), np.uint8)).shape
        (50, 80, 3)
    """
    settings = warp_settings("random_perspective", image, interpolation, fill, Homography)
    op = RandomPerspective(plain(distortion_scale), plain(p), **settings)
    return call(op, image, seed)  # type: ignore[no-any-return]
