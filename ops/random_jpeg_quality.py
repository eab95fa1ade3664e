"""random_jpeg_quality: give an image the artifacts of JPEG compression at a random quality."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import Colour, check_bounds, rows_below, rows_within
from gpupipe.ops.adjust_jpeg_quality import JpegQuality, jpeg_tolerance, pictures
from gpupipe.ops.convert_image_dtype import dtype_of
from gpupipe.random import BatchRng

__all__ = ["RandomJpegQuality", "random_jpeg_quality"]

T = TypeVar("T")

NAMES = ("min_jpeg_quality", "max_jpeg_quality")
MOST = dict(zip(NAMES, (100, 101), strict=True))


@dataclass(frozen=True, slots=True)
class RandomJpegQuality(JpegQuality):
    """Encode and decode with an integer quality drawn from [min_jpeg_quality, max_jpeg_quality).

    Attributes:
        min_jpeg_quality: an integer, at least 0.
        max_jpeg_quality: an integer above it, at most 101.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, C 1 or 3.
    """

    random: ClassVar[bool] = True
    traceable: ClassVar[tuple[str, ...]] = NAMES

    min_jpeg_quality: Any = 50
    max_jpeg_quality: Any = 100

    def __post_init__(self) -> None:
        Colour.__post_init__(self)
        for name, most in MOST.items():
            check_number(self.name, name, getattr(self, name), 0, most, integer=True)
        check_bounds(self.name, NAMES, self.min_jpeg_quality, self.max_jpeg_quality)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        low, high = (
            rows_within(self.name, name, getattr(self, name), len(hw), 0, most, whole=True)
            for name, most in MOST.items()
        )
        rows_below(self.name, NAMES, low, high)
        return (rng.integers(low.astype(np.int64), high.astype(np.int64)).astype(np.int32),)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for low, high in ((0, 100), (80, 81)):
            for x in pictures():
                op = cls(low, high, dtype=x.dtype.name)
                yield Case(op, (x,), ("HWC",), **jpeg_tolerance(x), note=f"{low}..{high}")


def random_jpeg_quality(image: T, min_jpeg_quality: Any, max_jpeg_quality: Any, seed: int | None = None) -> T:
    """Give `image` the artifacts of JPEG compression at a random quality, one per image.

    Args:
        image: gray or RGB, of uint8, uint16, float16 or float32. It goes through 8 bits: floats are clipped to 0..1.
        min_jpeg_quality: an integer, at least 0. May be traced.
        max_jpeg_quality: an integer above it, at most 101; exclusive, as in tf.image. May be traced.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, C 1 or 3.

    Raises:
        SpecError: `image` is not such an image, or the qualities are not a range within 0..101.

    Example:
        >>> random_jpeg_quality(np.full((1, 1, 1), 128, np.uint8), 50, 90)
        array([[[128]]], dtype=uint8)
    """
    op = RandomJpegQuality(min_jpeg_quality, max_jpeg_quality, dtype=dtype_of("random_jpeg_quality", image))
    return apply(op, image, seed=seed)  # type: ignore[no-any-return]
