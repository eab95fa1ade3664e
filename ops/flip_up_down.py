"""flip_up_down: mirror every image up-down."""

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

__all__ = ["FlipUpDown", "flip_up_down"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FlipUpDown(Composite):
    """Mirror the image up-down. Exact on every executor.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, for each of the images.
    """

    def row(self, image: int = 0) -> Row:
        return ((Reverse(columns=False, lines=True), ()),)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for x in (noise(5, 4), noise(1, 7, 1), noise(6, 3, dtype=np.float32)):
            yield Case(cls(), (x,), ("HWC",))


def flip_up_down(image: T) -> T:
    """Mirror `image` up-down.

    Args:
        image: one image, a `Sample`, or a tuple of images of equal size.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image.

    Example:
        >>> flip_up_down(np.uint8([[[1]], [[2]]])).ravel()
        array([2, 1], dtype=uint8)
    """
    xs = images_of(image)
    return call(FlipUpDown(images=len(xs)), image)  # type: ignore[no-any-return]
