"""random_flip_up_down: mirror each image up-down with a given probability."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeVar, overload

from gpupipe.classes import dataclass
from gpupipe.ops._shared.composite import call
from gpupipe.ops._shared.flip import Direction, RandomFlip
from gpupipe.ops._shared.geometry import images_of
from gpupipe.ops._shared.keywords import keywords_after

__all__ = ["RandomFlipUpDown", "random_flip_up_down"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomFlipUpDown(RandomFlip):
    """Mirror the image up-down with probability `p` (0..1). Exact on every executor.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, for each of the images.
    """

    direction: ClassVar[Direction] = "up_down"


@overload
def random_flip_up_down(
    image: T, *, p: Any = 0.5, seed: int | None = None, return_params: Literal[False] = False
) -> T: ...


@overload
def random_flip_up_down(
    image: T, *, p: Any = 0.5, seed: int | None = None, return_params: Literal[True]
) -> tuple[T, Any]: ...


@keywords_after("write p= for the probability, or seed=, which is tf.image's second argument")
def random_flip_up_down(image: Any, *, p: Any = 0.5, seed: int | None = None, return_params: bool = False) -> Any:
    """Mirror `image` up-down with probability `p`.

    Args:
        image: one image, a `Sample`, or a tuple of images of equal size, which are mirrored together.
        p: probability, 0..1.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.
        return_params: also return whether the image was mirrored, a bool, as a pair with the result: to mirror boxes
            with it, say.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image, or `p` is outside 0..1.

    Example:
        >>> random_flip_up_down(np.uint8([[[1]], [[2]]]), p=1).ravel()
        array([2, 1], dtype=uint8)
    """
    return call(RandomFlipUpDown(p, images=len(images_of(image))), image, seed, return_params)
