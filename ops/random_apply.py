"""random_apply: apply a function to each image with a given probability."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.ops._shared.choice import Choice, chosen, results_of
from gpupipe.ops._shared.geometry import column, images_of
from gpupipe.ops._shared.samples import noise
from gpupipe.ops._shared.travel import by_rows
from gpupipe.ops.sample import Sample
from gpupipe.random import BatchRng

__all__ = ["RandomApply", "random_apply"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomApply(Choice):
    """Choose the changed images with probability `p` (0..1), else those unchanged. Exact on every executor.

    Shapes: ``T[...], T[...] -> T[...]``: changed, unchanged.
    """

    traceable: ClassVar[tuple[str, ...]] = ("p",)

    p: Any = 0.5

    def __post_init__(self) -> None:
        check_number(self.name, "p", self.p, 0, 1)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return ((rng.uniform() >= column(self.p, len(hw), np.float64)).astype(np.int32),)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for dtype in ("uint8", "float32", "float16"):
            x = noise(7, 9, dtype=dtype)
            yield Case(cls(0.5), (x[::-1].copy(), x), ("HWC", "HWC"))
        x, mask = noise(7, 9), noise(7, 9, 1)
        both = (x[:, ::-1].copy(), mask[:, ::-1].copy(), x, mask)
        op = cls(0.5, images=2, layouts=("HWC", "HWC"))
        yield Case(op, both, ("HWC",) * 4, note="with-mask")


def random_apply(
    function: Callable[[T], Any] | Sequence[Callable[[Any], Any]], image: T, p: Any = 0.5, *, seed: int | None = None
) -> T:
    """Apply `function` to `image` with probability `p`, as torchvision's `RandomApply`.

    The function is computed for every image, and those that it is not applied to are dropped: it costs as much as with
    p=1. A random op with a probability of its own (`random_flip_left_right(x, p)`) costs less.

    Args:
        function: takes an image and returns one of the same shape and dtype, or a list of such functions, which are
            applied one after another. It is called once, with traced images.
        image: one image, a `Sample`, or a tuple of images of equal size, which the function gets as a tuple and which
            are changed together.
        p: probability, 0..1.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: the function changes shape or dtype, or `p` is outside 0..1.
        ShapeError: at run time: it changes the size of an image.

    Example:
        >>> x = np.uint8([[[1], [2], [3]]])
        >>> random_apply(lambda image: image[:, ::-1], x, p=1).ravel()
        array([3, 2, 1], dtype=uint8)
    """
    who = "random_apply"

    def make(images: int, layouts: tuple[str, ...]) -> RandomApply:
        return RandomApply(p, images=images, layouts=layouts)

    def applied(image: Any) -> Any:
        given = (image,) if isinstance(image, Sample) else images_of(image)
        return chosen(who, make, [results_of(who, function, image), given], seed)

    return by_rows(who, image, applied)  # type: ignore[no-any-return]
