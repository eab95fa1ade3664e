"""random_solarize: invert the values from a threshold on, with a probability."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

from gpupipe.classes import dataclass
from gpupipe.graph.op import Case, Op
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import tolerance
from gpupipe.ops._shared.samples import tones
from gpupipe.ops._shared.sometimes import Sometimes
from gpupipe.ops.convert_image_dtype import LARGEST, dtype_of
from gpupipe.ops.solarize import Solarize, check_threshold

__all__ = ["RandomSolarize", "random_solarize"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomSolarize(Sometimes):
    """Invert the values that are at least `threshold` with probability `p`. Exact on every executor.

    Attributes:
        threshold: in the units of the image, at most the largest value of its type, or 1.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``
    """

    parameters: ClassVar[tuple[str, ...]] = ("applied", "threshold")
    traceable: ClassVar[tuple[str, ...]] = ("p", "threshold")

    threshold: Any = 128

    def __post_init__(self) -> None:
        Sometimes.__post_init__(self)
        check_threshold(self.name, self.threshold, self.dtype)

    @property
    def changed(self) -> Op:
        return Solarize(self.threshold, dtype=self.dtype)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for p in (0, 0.5, 1):
            for x in tones():
                op = cls(p, 0.3 * LARGEST[x.dtype.name], dtype=x.dtype.name)
                yield Case(op, (x,), ("HWC",), **tolerance(x), note=f"p={p}")


def random_solarize(image: T, threshold: Any, p: Any = 0.5, *, seed: int | None = None) -> T:
    """Invert the values of `image` from `threshold` on with probability `p`, as torchvision's `RandomSolarize`.

    Args:
        image: of uint8, uint16, float16 or float32; floats are 0..1 and not clipped.
        threshold: in the units of the image, up to 255, 65535 or 1. May be traced.
        p: probability, 0..1. May be traced.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image of such a type, or a parameter is out of range.

    Example:
        >>> random_solarize(np.array([[[0, 127, 128, 255]]], np.uint8), 128, p=1)
        array([[[  0, 127, 127,   0]]], dtype=uint8)
    """
    op = RandomSolarize(p, threshold, dtype=dtype_of("random_solarize", image))
    return apply(op, image, seed=seed)  # type: ignore[no-any-return]
