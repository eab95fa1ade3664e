"""resize_with_pad: fit an image into a size without distorting it, and fill the rest: a letterbox."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case
from gpupipe.ops._shared.composite import Composite, Row, call
from gpupipe.ops._shared.fill import Fill, fills_of
from gpupipe.ops._shared.geometry import GeometryError, check_sides, full, images_of, one_per_image, static
from gpupipe.ops._shared.padding import Padding
from gpupipe.ops._shared.samples import noise
from gpupipe.ops.resize import Resize, check_methods
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

__all__ = ["ResizeWithPad", "resize_with_pad"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ResizeWithPad(Composite):
    """Resize the image to the largest size in `height` x `width` that keeps its shape, and fill what is left around it.

    The largest size is computed in float32 and rounded down, as in TensorFlow. Executors differ as for `Resize`.

    Attributes:
        height: of the result, in pixels.
        width: of the result.
        method: one per image, see `Resize`.
        antialias: average over all source pixels when shrinking.
        fill: of what is left, one per image.

    Shapes: ``T[H,W,C]{HWC} -> float32[height,width,C]{HWC}``, T for "nearest"; for each of the images.
    """

    parameters: ClassVar[tuple[str, ...]] = ("resized", "start", "shape", "after")
    traceable: ClassVar[tuple[str, ...]] = ("height", "width")

    height: Any
    width: Any
    method: tuple[str, ...] = ("bilinear",)
    antialias: bool = False
    fill: tuple[Fill, ...] = ((0.0,),)

    def __post_init__(self) -> None:
        check_sides(self, *self.traceable)
        check_methods("resize_with_pad", self.method, self.images)

    def row(self, image: int = 0) -> Row:
        method = self.method[image]
        around = Padding("constant", self.fill[image], stage=self.name)
        return (Resize(None, None, method, antialias=self.antialias, stage=self.name), (0,)), (around, (1, 2, 3))

    def _infer(self, index: int, x: TensorSpec) -> TensorSpec:
        made = Composite._infer(self, index, x)
        assert made.shape is not None  # an image {HWC} has a rank
        return TensorSpec((static(self.height), static(self.width), made.shape[2]), made.dtype, "HWC")

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        target, size = full(self.height, self.width, len(hw)), hw.astype(np.float32)
        wanted = target.astype(np.float32)
        real = size / (size / wanted).max(axis=1, keepdims=True)
        resized = np.floor(real).astype(np.int32)
        bad = np.flatnonzero((resized < 1).any(axis=1)).tolist()
        if bad:
            reasons = {}
            for row in bad:
                (h, w), (height, width) = hw[row].tolist(), target[row].tolist()
                reasons[row] = (
                    f"resize_with_pad needs images of which a pixel is left, got {h}x{w} for {height}x{width}"
                )
            raise GeometryError.of_rows(reasons)
        before = np.maximum(np.floor((wanted - real) / np.float32(2)), 0).astype(np.int32)
        return resized, -before, target, target - resized - before

    @classmethod
    def cases(cls) -> Iterator[Case]:
        single, ring = "float32 rounding of weights", "DALI repeats edge pixels, TensorFlow ignores what lies outside"
        for x in (noise(31, 42), noise(42, 31, 1), noise(20, 20, dtype="float32")):
            yield Case(cls(24, 26), (x,), ("HWC",), atol=0.02, reason=single)
            yield Case(cls(24, 26, ("nearest",)), (x,), ("HWC",), note="nearest")
        yield Case(cls(50, 60, fill=((114.0,),)), (noise(31, 42),), ("HWC",), atol=0.02, reason=single, note="larger")
        yield Case(cls(15, 20, antialias=True), (noise(31, 42),), ("HWC",), atol=18, reason=ring, note="antialias")
        both = cls(24, 26, ("bilinear", "nearest"), fill=((1.0, 2.0, 3.0), (255.0,)), images=2)
        with_mask = (noise(31, 42), noise(31, 42, 1))
        yield Case(both, with_mask, ("HWC", "HWC"), atol=0.02, reason=single, note="with-mask")


def resize_with_pad(
    image: T,
    target_height: Any,
    target_width: Any,
    method: Any = "bilinear",
    antialias: bool = False,
    *,
    fill: Any = 0,
) -> T:
    """Fit `image` into a size without distorting it, and fill the rest, as `tf.image.resize_with_pad`: a letterbox.

    Args:
        image: one image, a `Sample`, or a tuple of images of equal size.
        target_height: rows of the result; a number or a traced host value.
        target_width: columns of the result.
        method: "bilinear", "bicubic", "lanczos3" or "nearest"; for several images it may be one per image.
        antialias: average over all source pixels when shrinking. False as in TensorFlow.
        fill: of what is left on two sides: a number, or one per channel; for several images one number, or such a fill
            per image. TensorFlow has zeros.

    Shapes: ``T[H,W,C]{HWC} -> float32[target_height,target_width,C]{HWC}``; "nearest" keeps the dtype.

    Raises:
        SpecError: `image` is not an image, a size is below 1, or a method is unknown.
        ShapeError: at run time: nothing would be left of an image so narrow.

    Example:
        >>> resize_with_pad(np.ones((2, 4, 1), np.uint8), 4, 4)[:, 0, 0]
        array([0., 1., 1., 0.], dtype=float32)
    """
    xs = images_of(image)
    methods = one_per_image("resize_with_pad", "method", method, image)
    fills = fills_of("resize_with_pad", image, fill)
    op = ResizeWithPad(target_height, target_width, methods, antialias, fills, images=len(xs))
    return call(op, image)  # type: ignore[no-any-return]
