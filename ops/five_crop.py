"""five_crop: the four corners and the centre of an image, as torchvision crops them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.op import Array, Case
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.composite import Composite, Row
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.geometry import check_sides, image_of, pair, static, window, windows_inside
from gpupipe.ops._shared.keywords import keywords_after
from gpupipe.ops._shared.samples import noise
from gpupipe.ops.center_crop import center_crop
from gpupipe.ops.sample import Sample
from gpupipe.ops.stack import stack
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

__all__ = ["CornerCrop", "five_crop", "five_crops"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CornerCrop(Composite):
    """Crop `height` x `width` pixels at a corner. Exact on every executor.

    Attributes:
        height: of the window, in pixels.
        width: of the window.
        bottom: whether it is at the bottom.
        right: whether it is on the right.
        stage: the op that users call, for errors.

    Shapes: ``T[H,W,C]{HWC} -> T[height,width,C]{HWC}``
    """

    parameters: ClassVar[tuple[str, ...]] = ("start", "shape")
    traceable: ClassVar[tuple[str, ...]] = ("height", "width")

    height: Any
    width: Any
    bottom: bool = False
    right: bool = False
    stage: str = "five_crop"

    def __post_init__(self) -> None:
        check_sides(self, *self.traceable)

    def row(self, image: int = 0) -> Row:
        return ((Crop(static(self.height), static(self.width)), (0, 1)),)

    def _infer(self, index: int, x: TensorSpec) -> TensorSpec:
        x = image_of(self.stage, x)
        assert x.shape is not None  # an image {HWC} has a rank
        for target, size in zip((static(self.height), static(self.width)), x.shape[:2], strict=True):
            if target is not None and size is not None and target > size:
                raise SpecError(f"{self.stage} needs an image as large as its crops, got {target} of {size} in {x}")
        return Composite._infer(self, index, x)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        _, size = window(0, 0, self.height, self.width, len(hw))
        spare = hw.astype(np.int64) - size
        start, shape = window(self.bottom * spare[:, 0], self.right * spare[:, 1], size[:, 0], size[:, 1], len(hw))
        return windows_inside(self.stage, hw, start, shape)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for bottom in (False, True):
            for right in (False, True):
                yield Case(cls(6, 5, bottom, right), (noise(9, 12),), ("HWC",), note=f"{bottom}-{right}")
        yield Case(cls(9, 12, True, True), (noise(9, 12, dtype="float32"),), ("HWC",), note="whole")


def five_crops(who: str, image: Any, size: Any) -> list[Any]:
    """The crops of `five_crop`, in its order."""
    if isinstance(image, tuple):
        raise PlanTypeError(f"{who} needs one image, got a tuple; call it for each of them")
    if isinstance(image, Sample):
        raise PlanTypeError(
            f"{who} needs one image, got a Sample, whose boxes differ from crop to crop; give it s.image"
        )
    height, width = pair(who, "size", size)
    corners = [CornerCrop(height, width, bottom, right, who) for bottom in (False, True) for right in (False, True)]
    return [*(apply(corner, image) for corner in corners), center_crop(image, (height, width))]


@keywords_after("write the size as one, (height, width)")
def five_crop(image: T, size: Any) -> T:
    """Crop the four corners and the centre of `image`, as torchvision's `FiveCrop`, and stack the five crops.

    Args:
        image: one image.
        size: (height, width) of each crop in pixels, or one number for both.

    Shapes: ``T[H,W,C]{HWC} -> T[5,height,width,C]``: upper left, upper right, lower left, lower right, centre.
        Ops on images take the result as a clip; a batch has the crops behind the rows, [B,5,height,width,C].

    Raises:
        SpecError: `image` is not an image, or is known to be smaller than `size`.
        ShapeError: at run time: the image is smaller than `size`.

    Example:
        >>> five_crop(np.arange(9, dtype=np.uint8).reshape(3, 3, 1), 1).ravel()
        array([0, 2, 6, 8, 4], dtype=uint8)
    """
    return stack(five_crops("five_crop", image, size), -4)  # type: ignore[no-any-return]
