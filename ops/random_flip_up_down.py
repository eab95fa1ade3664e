"""random_flip_up_down: mirror each image up-down with a given probability."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.graph.op import Array, Case, check_number
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.composite import Composite, Row
from gpupipe.ops._shared.flip import Flip
from gpupipe.ops._shared.geometry import column, images_of
from gpupipe.ops._shared.samples import noise
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

__all__ = ["RandomFlipUpDown", "random_flip_up_down"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomFlipUpDown(Composite):
    """Mirror the image up-down with probability `p` (0..1). Exact on every executor.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, for each of the images.
    """

    random: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...]] = ("mirror",)
    traceable: ClassVar[tuple[str, ...]] = ("p",)

    p: Any = 0.5

    def __post_init__(self) -> None:
        check_number("random_flip_up_down", "p", self.p, 0, 1)

    def row(self, image: int = 0) -> Row:
        return ((Flip("up_down"), (0,)),)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return ((rng.uniform() < column(self.p, len(hw), np.float64)).astype(np.int32),)

    def is_identity(self, x: TensorSpec) -> bool:
        return isinstance(self.p, (int, float)) and self.p == 0

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for p in (0, 0.5, 1):
            for x in (noise(5, 4), noise(1, 7, 1), noise(6, 3, dtype=np.float32)):
                yield Case(cls(p), (x,), ("HWC",), note=f"p={p}")
        yield Case(cls(images=2), (noise(5, 4), noise(5, 4, 1)), ("HWC", "HWC"), note="with-mask")


def random_flip_up_down(image: T, p: Any = 0.5, *, seed: int | None = None) -> T:
    """Mirror `image` up-down with probability `p`.

    Args:
        image: one image, or a tuple of images of equal size, which are mirrored together.
        p: probability, 0..1.
        seed: draws with this number instead of the count of such calls. Equal seeds draw equally for one element,
            behind a `zip` too, but not in the inputs of one.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is no image, or `p` is outside 0..1.

    Example:
        >>> random_flip_up_down(np.uint8([[[1]], [[2]]]), p=1).ravel()
        array([2, 1], dtype=uint8)
    """
    xs = images_of(image)
    return apply(RandomFlipUpDown(p, images=len(xs)), *xs, seed=seed)  # type: ignore[no-any-return]
