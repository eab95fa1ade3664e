"""flip_left_right: mirror every image left-right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Case
from gpupipe.ops._shared.composite import Composite, Row, call
from gpupipe.ops._shared.geometry import images_of
from gpupipe.ops._shared.reverse import Reverse
from gpupipe.ops._shared.samples import noise

__all__ = ["FlipLeftRight", "flip_left_right"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FlipLeftRight(Composite):
    """Mirror the image left-right. Exact on every executor.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, for each of the images.
    """

    def row(self, image: int = 0) -> Row:
        return ((Reverse(columns=True), ()),)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for x in (noise(5, 4), noise(1, 7, 1), noise(6, 3, dtype=np.float32)):
            yield Case(cls(), (x,), ("HWC",))


def flip_left_right(image: T) -> T:
    """Mirror `image` left-right.

    Args:
        image: one image, a `Sample`, or a tuple of images of equal size.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image.

    Example:
        >>> flip_left_right(np.uint8([[[1], [2], [3]]])).ravel()
        array([3, 2, 1], dtype=uint8)
    """
    xs = images_of(image)
    return call(FlipLeftRight(images=len(xs)), image)  # type: ignore[no-any-return]
