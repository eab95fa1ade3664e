"""random_hue: rotate the hue of every pixel by a random angle, one per image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import Colour, rows_within, uniform
from gpupipe.ops._shared.samples import tones
from gpupipe.ops.adjust_hue import Hue
from gpupipe.ops.adjust_saturation import division_tolerance
from gpupipe.ops.convert_image_dtype import dtype_of
from gpupipe.random import BatchRng

__all__ = ["RandomHue", "random_hue"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomHue(Hue):
    """Rotate the hue of every pixel by a number of turns drawn from [-max_delta, max_delta).

    Attributes:
        max_delta: in turns, 0..0.5.

    Shapes: ``T[H,W,3]{HWC} -> T[H,W,3]{HWC}``
    """

    random: ClassVar[bool] = True
    traceable: ClassVar[tuple[str, ...]] = ("max_delta",)

    max_delta: Any = 0.0

    def __post_init__(self) -> None:
        Colour.__post_init__(self)
        check_number(self.name, "max_delta", self.max_delta, 0, 0.5)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        most = rows_within(self.name, "max_delta", self.max_delta, len(hw), 0, 0.5)
        return (uniform(rng, -most, most),)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for most in (0, 0.5):
            for x in tones(gray=False):
                yield Case(
                    cls(most, dtype=x.dtype.name), (x,), ("HWC",), **division_tolerance(x), note=f"max_delta={most}"
                )


def random_hue(image: T, max_delta: Any, seed: int | None = None) -> T:
    """Add a random number from [-max_delta, max_delta) to the hue of every pixel, one number per image.

    Args:
        image: RGB, of uint8, uint16, float16 or float32.
        max_delta: in turns, 0..0.5. May be traced.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,3]{HWC} -> T[H,W,3]{HWC}``

    Raises:
        SpecError: `image` is not an image of 3 channels and such a type, or `max_delta` is outside 0..0.5.

    Example:
        >>> random_hue(np.full((1, 1, 3), 7, np.uint8), 0.5)
        array([[[7, 7, 7]]], dtype=uint8)
    """
    op = RandomHue(max_delta, dtype=dtype_of("random_hue", image))
    return apply(op, image, seed=seed)  # type: ignore[no-any-return]
