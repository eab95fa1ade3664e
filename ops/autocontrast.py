"""autocontrast: stretch every channel over the whole range."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import Colour, apart, joined, tolerance
from gpupipe.ops._shared.samples import tones
from gpupipe.ops.convert_image_dtype import LARGEST, dtype_of

__all__ = ["Autocontrast", "autocontrast", "flat_and_tones"]

T = TypeVar("T")

ENDS = (np.minimum, np.maximum)
"""What finds the lowest and the highest level."""


@dataclass(frozen=True, slots=True)
class Autocontrast(Colour):
    """``(x - low) / ((high - low) / largest)`` for each channel, as torchvision does; integers are truncated.

    A channel of one value stays as it is. Depends on the whole image, so it does not commute with a crop.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``
    """

    levels: ClassVar[Literal["", "kept", "unit"]] = ""  # it stretches any range to 0..1

    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = ""

    def reference(self, x: Array, *params: Any) -> Array:
        largest, f = LARGEST[self.dtype], apart(x)
        with np.errstate(all="ignore"):  # for floats that are not finite
            # one axis after the other is far cheaper than both at once
            low, high = (end.reduce(end.reduce(x, axis=0), axis=0).astype(np.float32) for end in ENDS)
            flat = low == high
            f -= low * ~flat
            f /= (high - low) * np.float32(1 / largest) + flat
            return joined(np.clip(f, 0, largest, out=f), self.dtype)

    def dali(self, d: Any, x: Any, *params: Any) -> Any:
        largest, real = LARGEST[self.dtype], d.dtype(np.float32)
        if largest == 1:
            x = d.fn.cast(x, dtype=real)
        ends = (d.fn.reductions.min, d.fn.reductions.max)
        low, high = (d.fn.cast(end(x, axes=[0, 1], keep_dims=True), dtype=real) for end in ends)
        span = high - low
        flat = d.fn.cast(span == 0.0, dtype=real)
        f = (x - low * (1.0 - flat)) / (span * (1 / largest) + flat)
        f = d.math.clamp(f, 0.0, 1.0) if largest == 1 else d.math.floor(f)  # the cast saturates
        return d.fn.cast(f, dtype=d.dtype(self.dtype))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for note, x in flat_and_tones():
            op = cls(dtype=x.dtype.name)
            yield Case(op, (x,), ("HWC",), **tolerance(x, DIVISION, 1, 1e-6), note=note)


DIVISION = "the last bit of a division may differ on a GPU, which can move a value across an integer; equal on the CPU"


def flat_and_tones() -> Iterator[tuple[str, Array]]:
    """Images with a channel of one value, with few values, of few levels, and those of `tones`, each with a note."""
    for x in tones():
        yield "", x
        yield "narrow", (x // 3 + 40 if x.dtype.kind == "u" else x / 3).astype(x.dtype)
    flat = next(iter(tones())).copy()
    flat[:, :, 1] = 77
    flat[:, :, 2] = 254 + (flat[:, :, 2] > 100)
    yield "flat", flat


def autocontrast(image: T) -> T:
    """Stretch every channel of `image` over the whole range, as torchvision's `autocontrast` with tensors.

    Of integers the highest level becomes 255 or, by torchvision's rounding, 254.

    Args:
        image: of uint8, uint16, float16 or float32; of floats the range is 0..1, and they have to be finite.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image of such a type.

    Example:
        >>> autocontrast(np.array([[[50], [72], [94]]], np.uint8)).ravel()
        array([  0, 127, 255], dtype=uint8)
    """
    return apply(Autocontrast(dtype=dtype_of("autocontrast", image)), image)  # type: ignore[no-any-return]
