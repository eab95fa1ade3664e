"""random_saturation: scale the saturation of every pixel by a random factor, one per image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import Colour, check_factors, factors
from gpupipe.ops._shared.samples import tones
from gpupipe.ops.adjust_saturation import Saturation, division_tolerance
from gpupipe.ops.convert_image_dtype import dtype_of
from gpupipe.random import BatchRng

__all__ = ["RandomSaturation", "random_saturation"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomSaturation(Saturation):
    """Scale the saturation of every pixel by a factor drawn from [lower, upper).

    Attributes:
        lower: at least 0.
        upper: above `lower`.

    Shapes: ``T[H,W,3]{HWC} -> T[H,W,3]{HWC}``
    """

    random: ClassVar[bool] = True
    traceable: ClassVar[tuple[str, ...]] = ("lower", "upper")

    lower: Any = 0.5
    upper: Any = 1.5

    def __post_init__(self) -> None:
        Colour.__post_init__(self)
        check_factors(self.name, self.lower, self.upper)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return (factors(self.name, rng, self.lower, self.upper, len(hw)),)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for lower, upper in ((0, 1), (0.5, 3)):
            for x in tones(gray=False):
                yield Case(
                    cls(lower, upper, dtype=x.dtype.name),
                    (x,),
                    ("HWC",),
                    **division_tolerance(x),
                    note=f"{lower}..{upper}",
                )


def random_saturation(image: T, lower: Any, upper: Any, seed: int | None = None) -> T:
    """Scale the saturation of every pixel by a random factor from [lower, upper), one per image.

    Args:
        image: RGB, of uint8, uint16, float16 or float32. Integers saturate, floats are not clipped.
        lower: at least 0. May be traced.
        upper: above `lower`. May be traced.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,3]{HWC} -> T[H,W,3]{HWC}``

    Raises:
        SpecError: `image` is not such an image, `lower` is negative, or `upper` is not above it.

    Example:
        >>> random_saturation(np.full((1, 1, 3), 7, np.uint8), 0.5, 1.5)
        array([[[7, 7, 7]]], dtype=uint8)
    """
    op = RandomSaturation(lower, upper, dtype=dtype_of("random_saturation", image))
    return apply(op, image, seed=seed)  # type: ignore[no-any-return]
