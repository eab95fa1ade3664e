"""autocontrast: stretch every channel over the whole range."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import Colour, tolerance
from gpupipe.ops._shared.samples import tones
from gpupipe.ops.convert_image_dtype import LARGEST, dtype_of

__all__ = ["Autocontrast", "autocontrast", "flat_and_tones"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Autocontrast(Colour):
    """``(x - low) / ((high - low) / largest)`` for each channel, as torchvision does; integers are truncated.

    A channel of one value stays as it is. Depends on the whole image, so it does not commute with a crop.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``
    """

    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = ""

    def reference(self, x: Array, *params: Any) -> Array:
        channels = [x[:, :, c] for c in range(x.shape[2])]  # far cheaper than both axes at once
        low, high = (np.array([end(channel) for channel in channels], x.dtype) for end in (np.min, np.max))
        if self.dtype != "uint8":
            return self._stretched(x, low, high)
        # 256 divisions for each channel instead of one per value
        levels = self._stretched(np.arange(256, dtype=np.uint8)[:, None, None], low, high)
        return np.stack([np.take(levels[:, 0, c], x[:, :, c]) for c in range(x.shape[2])], axis=2)

    def _stretched(self, x: Array, low: Array, high: Array) -> Array:
        largest = LARGEST[self.dtype]
        bottom, span = low.astype(np.float32), high.astype(np.float32) - low.astype(np.float32)
        flat = span == 0
        with np.errstate(all="ignore"):  # for floats that are not finite
            f = (x.astype(np.float32) - bottom * ~flat) / (span * np.float32(1 / largest) + flat)
            result: Array = np.clip(f, 0, largest, out=f).astype(self.dtype)
        return result

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
