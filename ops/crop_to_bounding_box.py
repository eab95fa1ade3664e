"""crop_to_bounding_box: crop a window at a given offset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.ops._shared.composite import Composite, Row, call
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.geometry import check_sides, image_of, images_of, static, window, windows_inside
from gpupipe.ops._shared.samples import noise
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

__all__ = ["CropToBoundingBox", "crop_to_bounding_box"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CropToBoundingBox(Composite):
    """Crop `target_height` x `target_width` pixels at (`offset_height`, `offset_width`). Exact on every executor.

    Shapes: ``T[H,W,C]{HWC} -> T[h,w,C]{HWC}``, for each of the images.
    """

    parameters: ClassVar[tuple[str, ...]] = ("start", "shape")
    traceable: ClassVar[tuple[str, ...]] = ("offset_height", "offset_width", "target_height", "target_width")

    offset_height: Any
    offset_width: Any
    target_height: Any
    target_width: Any

    def __post_init__(self) -> None:
        for name in ("offset_height", "offset_width"):
            check_number("crop_to_bounding_box", name, getattr(self, name), 0, 1 << 30, integer=True)
        check_sides(self, "target_height", "target_width")

    def row(self, image: int = 0) -> Row:
        return ((Crop(static(self.target_height), static(self.target_width)), (0, 1)),)

    def _infer(self, index: int, x: TensorSpec) -> TensorSpec:
        x = image_of(self.name, x)
        assert x.shape is not None  # an image {HWC} has a rank
        ends = (
            (self.offset_height, self.target_height, x.shape[0]),
            (self.offset_width, self.target_width, x.shape[1]),
        )
        for offset, target, size in ends:
            first, length = static(offset), static(target)
            if None not in (length, size) and (first or 0) + length > size:  # type: ignore[operator]
                raise SpecError(f"{self.name} needs a window inside the image, got {first}+{length} of {size} in {x}")
        return Composite._infer(self, index, x)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        box = window(self.offset_height, self.offset_width, self.target_height, self.target_width, len(hw))
        return windows_inside(self.name, hw, *box)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for x in (noise(7, 9), noise(7, 9, 1), noise(7, 9, 2, "float32"), noise(7, 9, 3, "int32")):
            yield Case(cls(1, 2, 5, 4), (x,), ("HWC",))
        yield Case(cls(0, 0, 7, 9), (noise(7, 9),), ("HWC",), note="whole")
        yield Case(cls(6, 8, 1, 1), (noise(7, 9),), ("HWC",), note="corner")
        yield Case(cls(1, 2, 3, 4, images=2), (noise(7, 9), noise(7, 9, 1)), ("HWC", "HWC"), note="with-mask")


def crop_to_bounding_box(image: T, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any) -> T:
    """Crop a window at a given offset.

    Args:
        image: one image, a `Sample`, or a tuple of images of equal size.
        offset_height: first row of the window, from 0; like the other three, a number or a traced host value.
        offset_width: first column of the window, from 0.
        target_height: rows of the window, from 1.
        target_width: columns of the window, from 1.

    Shapes: ``T[H,W,C]{HWC} -> T[target_height,target_width,C]{HWC}``

    Raises:
        SpecError: `image` is not an image, or the window is known to reach beyond it.
        ShapeError: at run time: the window reaches beyond the image.

    Example:
        >>> crop_to_bounding_box(np.arange(6, dtype=np.uint8).reshape(2, 3, 1), 1, 1, 1, 2).ravel()
        array([4, 5], dtype=uint8)
    """
    xs = images_of(image)
    op = CropToBoundingBox(offset_height, offset_width, target_height, target_width, images=len(xs))
    return call(op, image)  # type: ignore[no-any-return]
