"""random_autocontrast: stretch every channel over the whole range, with a probability."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar

from gpupipe.classes import dataclass
from gpupipe.graph.op import Case, Op
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import tolerance
from gpupipe.ops._shared.sometimes import Sometimes
from gpupipe.ops.autocontrast import DIVISION, Autocontrast, flat_and_tones
from gpupipe.ops.convert_image_dtype import dtype_of

__all__ = ["RandomAutocontrast", "random_autocontrast"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomAutocontrast(Sometimes):
    """Stretch every channel over the whole range of each image with probability `p`.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``
    """

    levels: ClassVar[Literal["", "kept", "unit"]] = ""  # it stretches any range to 0..1

    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = ""

    @property
    def changed(self) -> Op:
        return Autocontrast(dtype=self.dtype)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for p in (0, 0.5, 1):
            for note, x in flat_and_tones():
                op = cls(p, dtype=x.dtype.name)
                yield Case(op, (x,), ("HWC",), **tolerance(x, DIVISION, 1, 1e-6), note=f"p={p}{note}")


def random_autocontrast(image: T, p: Any = 0.5, *, seed: int | None = None) -> T:
    """Stretch every channel of `image` over the whole range with probability `p`, as torchvision does.

    Args:
        image: of uint8, uint16, float16 or float32. Of floats the range is 0..1, and they have to be finite.
        p: probability, 0..1. May be traced.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image of such a type, or `p` is outside 0..1.

    Example:
        >>> random_autocontrast(np.array([[[50], [72], [94]]], np.uint8), p=1).ravel()
        array([  0, 127, 255], dtype=uint8)
    """
    op = RandomAutocontrast(p, dtype=dtype_of("random_autocontrast", image))
    return apply(op, image, seed=seed)  # type: ignore[no-any-return]
