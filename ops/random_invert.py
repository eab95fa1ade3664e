"""random_invert: the negative of an image, with a probability."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from gpupipe.classes import dataclass
from gpupipe.graph.op import Case, Op
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import tolerance
from gpupipe.ops._shared.samples import tones
from gpupipe.ops._shared.sometimes import Sometimes
from gpupipe.ops.convert_image_dtype import dtype_of
from gpupipe.ops.invert import Invert

__all__ = ["RandomInvert", "random_invert"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomInvert(Sometimes):
    """Invert the colours of each image with probability `p`. Exact on every executor.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``
    """

    @property
    def changed(self) -> Op:
        return Invert(dtype=self.dtype)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for p in (0, 0.5, 1):
            for x in tones():
                yield Case(cls(p, dtype=x.dtype.name), (x,), ("HWC",), **tolerance(x), note=f"p={p}")


def random_invert(image: T, p: Any = 0.5, *, seed: int | None = None) -> T:
    """Invert the colours of `image` with probability `p`, as torchvision's `RandomInvert`.

    Args:
        image: of uint8, uint16, float16 or float32; floats are 0..1 and not clipped.
        p: probability, 0..1. May be traced.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image of such a type, or `p` is outside 0..1.

    Example:
        >>> random_invert(np.array([[[0, 100, 255]]], np.uint8), p=1)
        array([[[255, 155,   0]]], dtype=uint8)
    """
    return apply(RandomInvert(p, dtype=dtype_of("random_invert", image)), image, seed=seed)  # type: ignore[no-any-return]
