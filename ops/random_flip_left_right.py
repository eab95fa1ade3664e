"""random_flip_left_right: mirror each image left-right with a given probability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.flip import Direction, RandomFlip
from gpupipe.ops._shared.geometry import images_of

__all__ = ["RandomFlipLeftRight", "random_flip_left_right"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomFlipLeftRight(RandomFlip):
    """Mirror the image left-right with probability `p` (0..1). Exact on every executor.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, for each of the images.
    """

    direction: ClassVar[Direction] = "left_right"


def random_flip_left_right(image: T, p: Any = 0.5, *, seed: int | None = None) -> T:
    """Mirror `image` left-right with probability `p`.

    Args:
        image: one image, or a tuple of images of equal size, which are mirrored together.
        p: probability, 0..1.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image, or `p` is outside 0..1.

    Example:
        >>> random_flip_left_right(np.uint8([[[1], [2], [3]]]), p=1).ravel()
        array([3, 2, 1], dtype=uint8)
    """
    xs = images_of(image)
    return apply(RandomFlipLeftRight(p, images=len(xs)), *xs, seed=seed)  # type: ignore[no-any-return]
