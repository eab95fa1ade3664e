"""random_equalize: equalize the histogram of every channel, with a probability."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case, Op
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import tolerance
from gpupipe.ops._shared.sometimes import Sometimes
from gpupipe.ops.autocontrast import flat_and_tones
from gpupipe.ops.convert_image_dtype import dtype_of
from gpupipe.ops.equalize import Equalize

__all__ = ["RandomEqualize", "random_equalize"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomEqualize(Sometimes):
    """Equalize the histogram of every channel of each image with probability `p`. Exact on every executor.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``
    """

    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = ""

    @property
    def changed(self) -> Op:
        return Equalize(dtype=self.dtype)

    def fast(self, x: Array, *params: Any) -> Array:
        return self._applied(self.changed.fast, x, *params)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for p in (0, 0.5, 1):
            for note, x in flat_and_tones():
                op = cls(p, dtype=x.dtype.name)
                yield Case(op, (x,), ("HWC",), **tolerance(x), note=f"p={p}{note}")


def random_equalize(image: T, p: Any = 0.5, *, seed: int | None = None) -> T:
    """Equalize the histogram of every channel of `image` with probability `p`, as torchvision's `RandomEqualize`.

    Args:
        image: of uint8, uint16, float16 or float32. It goes through 8 bits: floats are clipped to 0..1.
        p: probability, 0..1. May be traced.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image of such a type, or `p` is outside 0..1.

    Example:
        >>> x = np.repeat(np.array([10, 20, 30], np.uint8), 255).reshape(15, 51, 1)
        >>> np.unique(random_equalize(x, p=1))
        array([  0, 128, 255], dtype=uint8)
    """
    op = RandomEqualize(p, dtype=dtype_of("random_equalize", image))
    return apply(op, image, seed=seed)  # type: ignore[no-any-return]
