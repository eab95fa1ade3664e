"""random_brightness: add a random number to every pixel, one per image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import Colour, rows_within, tolerance, uniform
from gpupipe.ops._shared.samples import tones
from gpupipe.ops.adjust_brightness import Brightness, within
from gpupipe.ops.convert_image_dtype import dtype_of
from gpupipe.random import BatchRng

__all__ = ["RandomBrightness", "random_brightness"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomBrightness(Brightness):
    """Add a number drawn from [-max_delta, max_delta). Exact on every executor except for the last bit of float16.

    Attributes:
        max_delta: at least 0.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``
    """

    random: ClassVar[bool] = True
    traceable: ClassVar[tuple[str, ...]] = ("max_delta",)

    max_delta: Any = 0.0

    def __post_init__(self) -> None:
        Colour.__post_init__(self)
        check_number(self.name, "max_delta", self.max_delta, 0, within(self.dtype)[1])

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        most = rows_within(self.name, "max_delta", self.max_delta, len(hw), 0, within(self.dtype)[1])
        return (uniform(rng, -most, most),)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for most in (0, 0.4):
            for x in tones():
                yield Case(cls(most, dtype=x.dtype.name), (x,), ("HWC",), **tolerance(x), note=f"max_delta={most}")


def random_brightness(image: T, max_delta: Any, seed: int | None = None) -> T:
    """Add a random number from [-max_delta, max_delta) to every pixel, one number per image.

    Args:
        image: of uint8, uint16, float16 or float32. Integers saturate, floats are not clipped.
        max_delta: at least 0; 1 is the whole range of integers; for floats, in their own units. May be traced.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image of such a type, or `max_delta` is negative, or above 1 for integers.

    Example:
        >>> random_brightness(np.full((1, 1, 1), 7, np.uint8), 0.0)
        array([[[7]]], dtype=uint8)
    """
    op = RandomBrightness(max_delta, dtype=dtype_of("random_brightness", image))
    return apply(op, image, seed=seed)  # type: ignore[no-any-return]
