"""random_zoom_out: put an image somewhere on a larger canvas, as SSD's training does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import MOST_FACTOR, Array, Case, check_number
from gpupipe.integers import plain
from gpupipe.ops._shared.composite import Composite, Row, call
from gpupipe.ops._shared.fill import Fill, fills_of
from gpupipe.ops._shared.geometry import column, images_of, smallest_and_largest
from gpupipe.ops._shared.padding import Padding
from gpupipe.ops._shared.samples import noise
from gpupipe.random import BatchRng

__all__ = ["RandomZoomOut", "random_zoom_out"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomZoomOut(Composite):
    """With probability `p`, put the image on a canvas whose sides are longer by one factor. Exact on every executor.

    Attributes:
        side_range: bounds of the factor, 1 or more.
        p: probability, 0..1.
        fill: of the canvas, one per image.

    Shapes: ``T[H,W,C]{HWC} -> T[h,w,C]{HWC}``, for each of the images.
    """

    random: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...]] = ("start", "shape", "after")
    traceable: ClassVar[tuple[str, ...]] = ("p",)

    side_range: tuple[float, float] = (1.0, 4.0)
    p: Any = 0.5
    fill: tuple[Fill, ...] = ((0.0,),)

    def __post_init__(self) -> None:
        check_number(self.name, "p", self.p, 0, 1)
        for bound in self.side_range:
            check_number(self.name, "side_range", bound, 1, MOST_FACTOR, traceable=False)
        if self.side_range[0] > self.side_range[1]:
            raise SpecError(f"{self.name} needs side_range from small to large, got {self.side_range}")

    def row(self, image: int = 0) -> Row:
        return ((Padding("constant", self.fill[image], stage=self.name), (0, 1, 2)),)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        u = rng.uniform(4)
        low, high = self.side_range
        factor = np.where(u[:, 0] < column(self.p, len(hw), np.float64), low + u[:, 1] * (high - low), 1.0)
        canvas = np.trunc(hw * factor[:, None]).astype(np.int64)
        before = np.trunc((canvas - hw) * u[:, 3:1:-1]).astype(np.int64)  # torchvision draws that of the width first
        whole = np.int32 if canvas.max(initial=0) <= np.iinfo(np.int32).max else np.int64  # `drawn_for` refuses these
        return tuple(part.astype(whole) for part in (-before, canvas, canvas - hw - before))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for x in (noise(7, 9), noise(7, 9, 1), noise(7, 9, dtype="float32")):
            yield Case(cls(), (x,), ("HWC",))
        yield Case(cls(p=0.0), (noise(7, 9),), ("HWC",), note="never")
        both = cls((2.0, 3.0), 1.0, ((1.0, 2.0, 3.0), (255.0,)), images=2)
        yield Case(both, (noise(7, 9), noise(7, 9, 1)), ("HWC", "HWC"), note="with-mask")


def random_zoom_out(
    image: T, fill: Any = 0, side_range: Sequence[float] = (1.0, 4.0), p: Any = 0.5, *, seed: int | None = None
) -> T:
    """Put `image` somewhere on a larger canvas with probability `p`, as torchvision's `RandomZoomOut`.

    Args:
        image: one image, a `Sample`, or a tuple of images of equal size.
        fill: of the canvas: a number, or one per channel; for several images one number, or such a fill per image.
        side_range: bounds of the factor by which both sides are longer.
        p: probability, 0..1; a number or a traced host value.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> T[h,w,C]{HWC}``

    Raises:
        SpecError: `image` is not an image, `fill` does not fit it, or a number is out of range.

    Example:
        >>> random_zoom_out(np.ones((2, 3, 1), np.uint8), side_range=(2, 2), p=1).shape
        (4, 6, 1)
    """
    low, high = smallest_and_largest("random_zoom_out", "side_range", side_range)
    fills = fills_of("random_zoom_out", image, fill)
    return call(RandomZoomOut((low, high), plain(p), fills, images=len(images_of(image))), image, seed)  # type: ignore[no-any-return]
