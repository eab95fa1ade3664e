"""random_size_crop: crop a window of random size at a random place, as DETR's training does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.integers import plain
from gpupipe.ops._shared.composite import Composite, Row, call
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.geometry import check_sides, column, images_of, several, window, windows_inside
from gpupipe.ops._shared.samples import noise
from gpupipe.random import BatchRng

__all__ = ["RandomSizeCrop", "random_size_crop"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomSizeCrop(Composite):
    """With probability `p`, crop a window of random width and height. Exact on every executor.

    Attributes:
        min_size: the least width, and height, in pixels.
        max_size: the largest.
        shortest: lengths of the shorter side, one of which is drawn, for which these sizes are meant; () for its own.
        p: probability, 0..1.

    Shapes: ``T[H,W,C]{HWC} -> T[h,w,C]{HWC}``, for each of the images.
    """

    random: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...]] = ("start", "shape")
    traceable: ClassVar[tuple[str, ...]] = ("p",)

    min_size: int
    max_size: int
    shortest: tuple[int, ...] = ()
    p: Any = 1.0

    def __post_init__(self) -> None:
        check_number(self.name, "p", self.p, 0, 1)
        check_sides(self, "min_size", "max_size")
        check_sides(self, "shortest", several=True)
        if self.min_size > self.max_size:
            raise SpecError(f"{self.name} needs min_size up to max_size, got {self.min_size} and {self.max_size}")

    def row(self, image: int = 0) -> Row:
        return ((Crop(), (0, 1)),)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        u, count = rng.uniform(6), len(hw)
        scale = np.ones((count, 1))
        if self.shortest:
            lengths = np.array(self.shortest, np.float64)[np.floor(u[:, 5] * len(self.shortest)).astype(int)]
            scale = lengths[:, None] / hw.min(axis=1, keepdims=True)
        sides = np.maximum(np.floor(hw * scale + 1e-9), 1)
        low, high = np.minimum(sides, self.min_size), np.minimum(sides, self.max_size)
        size = low + np.floor(u[:, 1:3] * (high - low + 1))  # both ends included
        start = np.floor(u[:, 3:5] * (sides - size + 1))
        first, last = np.rint(start / scale), np.minimum(np.rint((start + size) / scale), hw)
        first = np.minimum(first, last - 1)
        spared = u[:, 0] >= column(self.p, count, np.float64)
        first[spared], last[spared] = 0, hw[spared]
        length = last - first
        box = window(first[:, 0], first[:, 1], length[:, 0], length[:, 1], count)
        return windows_inside(self.name, hw, *box)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for x in (noise(17, 23), noise(17, 23, 1), noise(17, 23, dtype="float32")):
            yield Case(cls(5, 12), (x,), ("HWC",))
        yield Case(cls(5, 12, p=0.0), (noise(17, 23),), ("HWC",), note="never")
        yield Case(cls(100, 200), (noise(17, 23),), ("HWC",), note="small")
        scaled = cls(384, 600, (400, 500, 600), images=2)
        yield Case(scaled, (noise(17, 23), noise(17, 23, 1)), ("HWC", "HWC"), note="with-mask")


def random_size_crop(
    image: T, min_size: int, max_size: int, shortest: Sequence[int] = (), p: Any = 1.0, *, seed: int | None = None
) -> T:
    """Crop a window of random width and height at a random place, with probability `p`, as DETR's `RandomSizeCrop`.

    DETR resizes the image before it, so that its shorter side is 400, 500 or 600, and again after it. With `shortest`
    the window is the one that would be cropped then, and the first resizing is not needed.

    Args:
        image: one image, a `Sample`, or a tuple of images of equal size.
        min_size: the least width, and height, in pixels; a shorter side stays whole.
        max_size: the largest.
        shortest: lengths, one of which is drawn: `min_size` and `max_size` are those for an image whose shorter side is
            that long. Nothing is resized. By default they are for the image as it is.
        p: probability, 0..1; a number or a traced host value.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> T[h,w,C]{HWC}``

    Raises:
        SpecError: `image` is not an image, or a number is out of range.

    Example:
        >>> random_size_crop(np.zeros((50, 80, 3), np.uint8), 30, 30).shape
        (30, 30, 3)
    """
    lengths = several("random_size_crop", "shortest", shortest)
    count = len(images_of(image))
    return call(RandomSizeCrop(plain(min_size), plain(max_size), lengths, plain(p), images=count), image, seed)  # type: ignore[no-any-return]
