"""random_posterize: keep the highest bits of every value, with a probability."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

from gpupipe.classes import dataclass
from gpupipe.graph.op import Case, Op, check_number
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import tolerance
from gpupipe.ops._shared.samples import tones
from gpupipe.ops._shared.sometimes import Sometimes
from gpupipe.ops.convert_image_dtype import dtype_of
from gpupipe.ops.posterize import Posterize

__all__ = ["RandomPosterize", "random_posterize"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomPosterize(Sometimes):
    """Keep the highest `bits` bits of every value with probability `p`. Exact on every executor.

    Attributes:
        bits: an integer, 0..8.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``
    """

    parameters: ClassVar[tuple[str, ...]] = ("applied", "kept")
    traceable: ClassVar[tuple[str, ...]] = ("p", "bits")

    bits: Any = 8

    def __post_init__(self) -> None:
        Sometimes.__post_init__(self)
        check_number(self.name, "bits", self.bits, 0, 8, integer=True)

    @property
    def changed(self) -> Op:
        return Posterize(self.bits, dtype=self.dtype)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for p in (0, 0.5, 1):
            for x in tones():
                yield Case(cls(p, 3, dtype=x.dtype.name), (x,), ("HWC",), **tolerance(x), note=f"p={p}")


def random_posterize(image: T, bits: Any, p: Any = 0.5, *, seed: int | None = None) -> T:
    """Keep the highest `bits` bits of every value of `image` with probability `p`, as torchvision's `RandomPosterize`.

    Args:
        image: of uint8, uint16, float16 or float32. Floats get ``2 ** bits`` levels from 0 to just below 1.
        bits: an integer, 0 (black) to 8 (of uint8 nothing changes). May be traced.
        p: probability, 0..1. May be traced.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image of such a type, or a parameter is out of range.

    Example:
        >>> random_posterize(np.array([[[0, 63, 64, 255]]], np.uint8), 2, p=1)
        array([[[  0,   0,  64, 192]]], dtype=uint8)
    """
    op = RandomPosterize(p, bits, dtype=dtype_of("random_posterize", image))
    return apply(op, image, seed=seed)  # type: ignore[no-any-return]
