"""rot90: rotate an image by quarter turns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.graph.symbols import Symbol
from gpupipe.ops._shared.composite import Composite, Row, call
from gpupipe.ops._shared.geometry import column, images_of, static
from gpupipe.ops._shared.samples import noise
from gpupipe.ops._shared.turn import WIDENED, Turn
from gpupipe.random import BatchRng

__all__ = ["Rot90", "rot90"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rot90(Composite):
    """Rotate the image counter-clockwise by `k` quarter turns. Exact on every executor.

    Attributes:
        k: number of turns.
        widened: for each image whether `Turn` widens it; () for none.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, or ``T[W,H,C]`` for odd `k`; for each of the images.
    """

    parameters: ClassVar[tuple[str, ...]] = ("turns",)
    traceable: ClassVar[tuple[str, ...]] = ("k",)

    k: Any = 1
    widened: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        check_number("rot90", "k", self.k, -(1 << 31), (1 << 31) - 1, integer=True)
        if isinstance(self.k, int) and self.k and self.k % 90 == 0:
            raise SpecError(f"rot90 needs k as a number of quarter turns, got {self.k}; for degrees, {self.k // 90}")

    def row(self, image: int = 0) -> Row:
        turns = static(self.k)
        widened = turns is None and any(self.widened[image : image + 1])
        return ((Turn(None if turns is None else turns % 4, widened), (0,)),)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return ((column(self.k, len(hw)) % 4).astype(np.int32),)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for k in (-1, 0, 1, 2, 3, 4):
            yield Case(cls(k), (noise(5, 4),), ("HWC",), note=f"k={k}")
        yield Case(cls(1), (noise(1, 7, 1),), ("HWC",), note="gray")
        yield Case(cls(3), (noise(6, 3, 2, "float32"),), ("HWC",), note="k=3")
        yield Case(cls(1, images=2), (noise(5, 4), noise(5, 4, 1)), ("HWC", "HWC"), note="with-mask")


def rot90(image: T, k: Any = 1) -> T:
    """Rotate `image` counter-clockwise by `k` quarter turns.

    Args:
        image: one image, a `Sample`, or a tuple of images of equal size.
        k: an integer, or a traced host value, which may differ from image to image; negative values rotate clockwise.
            With a traced `k`, images have to be uint8, int8, uint16, int16, int32 or float32.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, or ``T[W,H,C]`` for odd `k`

    Raises:
        SpecError: `image` is not an image.

    Example:
        >>> rot90(np.uint8([[[1], [2], [3]]])).ravel()
        array([3, 2, 1], dtype=uint8)
    """
    xs = images_of(image)
    widened = tuple(isinstance(x, Symbol) and x._value.spec.dtype in WIDENED for x in xs)
    return call(Rot90(k, widened, images=len(xs)), image)  # type: ignore[no-any-return]
