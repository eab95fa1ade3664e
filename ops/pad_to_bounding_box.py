"""pad_to_bounding_box: pad each image with zeros at a given offset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Case
from gpupipe.ops._shared.composite import Composite, Row, call
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.geometry import GeometryError, check_sides, image_of, images_of, static, window
from gpupipe.ops._shared.samples import noise
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

__all__ = ["PadToBoundingBox", "pad_to_bounding_box"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PadToBoundingBox(Composite):
    """Place the image at (`offset_height`, `offset_width`) on `target_height` x `target_width` zeros.

    Exact on every executor.

    Shapes: ``T[H,W,C]{HWC} -> T[h,w,C]{HWC}``, for each of the images.
    """

    parameters: ClassVar[tuple[str, ...]] = ("start", "shape")
    traceable: ClassVar[tuple[str, ...]] = ("offset_height", "offset_width", "target_height", "target_width")

    offset_height: Any
    offset_width: Any
    target_height: Any
    target_width: Any

    def __post_init__(self) -> None:
        check_sides(self, "offset_height", "offset_width", low=0)
        check_sides(self, "target_height", "target_width")

    def row(self, image: int = 0) -> Row:
        return ((Crop(static(self.target_height), static(self.target_width), pad=True), (0, 1)),)

    def _infer(self, index: int, x: TensorSpec) -> TensorSpec:
        x = image_of(self.name, x)
        assert x.shape is not None  # an image {HWC} has a rank
        ends = (
            (self.offset_height, self.target_height, x.shape[0]),
            (self.offset_width, self.target_width, x.shape[1]),
        )
        for offset, target, size in ends:
            first, length = static(offset), static(target)
            if None not in (length, size) and (first or 0) + size > length:  # type: ignore[operator]
                raise SpecError(f"{self.name} needs room for the image, got {size} at {first} in {length} for {x}")
        return Composite._infer(self, index, x)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        offset, shape = window(self.offset_height, self.offset_width, self.target_height, self.target_width, len(hw))
        bad = np.flatnonzero(((offset < 0) | (offset.astype(np.int64) + hw > shape)).any(axis=1)).tolist()
        if bad:
            reasons = {}
            for row in bad:
                (y, x), (height, width), (h, w) = (part[row].tolist() for part in (offset, hw, shape))
                got = f"one of {height}x{width} at ({y}, {x}) in {h}x{w}"
                reasons[row] = f"{self.name} needs room for the image, got {got}"
            raise GeometryError.of_rows(reasons)
        return -offset, shape

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for x in (noise(3, 4), noise(3, 4, 1), noise(3, 4, dtype="float32")):
            yield Case(cls(1, 2, 7, 8), (x,), ("HWC",))
        yield Case(cls(0, 0, 3, 4), (noise(3, 4),), ("HWC",), note="same")
        yield Case(cls(2, 0, 5, 9), (noise(3, 4),), ("HWC",), note="corner")


def pad_to_bounding_box(image: T, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any) -> T:
    """Pad `image` with zeros, placing it at a given offset.

    Args:
        image: one image, a `Sample`, or a tuple of images of equal size.
        offset_height: rows of zeros above it; like the other three, a number or a traced host value.
        offset_width: columns of zeros left of it.
        target_height: rows of the result.
        target_width: columns of the result.

    Shapes: ``T[H,W,C]{HWC} -> T[target_height,target_width,C]{HWC}``

    Raises:
        SpecError: `image` is not an image, or is known to be too large.
        ShapeError: at run time: the image is too large.

    Example:
        >>> pad_to_bounding_box(np.ones((1, 1, 1), np.uint8), 0, 1, 1, 3).ravel()
        array([0, 1, 0], dtype=uint8)
    """
    xs = images_of(image)
    op = PadToBoundingBox(offset_height, offset_width, target_height, target_width, images=len(xs))
    return call(op, image)  # type: ignore[no-any-return]
