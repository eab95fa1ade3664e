"""ten_crop: the corners and the centre of an image, and of its mirror image, as torchvision crops them."""

from __future__ import annotations

from typing import Any, TypeVar

from gpupipe.graph.op import check_flag
from gpupipe.ops._shared.keywords import keywords_after
from gpupipe.ops.five_crop import five_crops
from gpupipe.ops.flip_left_right import flip_left_right
from gpupipe.ops.flip_up_down import flip_up_down
from gpupipe.ops.stack import stack

__all__ = ["ten_crop"]

T = TypeVar("T")


@keywords_after("write the size as one, (height, width)")
def ten_crop(image: T, size: Any, *, vertical_flip: bool = False) -> T:
    """Crop `image` as `five_crop` does, then its mirror image, as torchvision's `TenCrop`, and stack the ten crops.

    Args:
        image: one image.
        size: (height, width) of each crop in pixels, or one number for both.
        vertical_flip: mirror it upside down instead of left to right.

    Shapes: ``T[H,W,C]{HWC} -> T[10,height,width,C]``, see `five_crop`.

    Raises:
        SpecError: `image` is not an image, or is known to be smaller than `size`.
        ShapeError: at run time: the image is smaller than `size`.

    Example:
        >>> ten_crop(np.arange(9, dtype=np.uint8).reshape(3, 3, 1), 1).ravel()
        array([0, 2, 6, 8, 4, 2, 0, 8, 6, 4], dtype=uint8)
    """
    check_flag("ten_crop", "vertical_flip", vertical_flip)
    crops = five_crops("ten_crop", image, size)
    mirrored = flip_up_down(image) if vertical_flip else flip_left_right(image)
    return stack([*crops, *five_crops("ten_crop", mirrored, size)], -4)  # type: ignore[no-any-return]
