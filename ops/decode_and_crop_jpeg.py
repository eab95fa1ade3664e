"""decode_and_crop_jpeg: decode a window of a JPEG."""

from __future__ import annotations

from typing import Any

from gpupipe.errors import PlanTypeError
from gpupipe.ops.crop_to_bounding_box import crop_to_bounding_box
from gpupipe.ops.decode_jpeg import decode_jpeg

__all__ = ["decode_and_crop_jpeg"]


def decode_and_crop_jpeg(contents: Any, crop_window: Any, channels: int = 0, *, exif_orientation: bool = False) -> Any:
    """Decode a window of a JPEG: `decode_jpeg`, then `crop_to_bounding_box`, fused by the optimizer.

    The pixels equal those of the whole decoded image. (TensorFlow's differ at the border of the window.)

    Args:
        contents: the bytes of the file.
        crop_window: (y, x, height, width) in pixels; numbers or traced host values.
        channels: as in `decode_jpeg`.
        exif_orientation: rotate the image upright first.

    Shapes: ``bytes -> uint8[height,width,C]{HWC}``

    Raises:
        SpecError: `contents` is not bytes, an offset is negative, a size is below 1, or, outside a traced function,
            the window reaches beyond the image.
        DecodeError: at run time, as in `decode_jpeg`, which it names as the step.
        ShapeError: at run time: the window reaches beyond the image.

    Example:
        >>> decode_and_crop_jpeg(open("photograph.jpg", "rb").read(), (0, 0, 9, 9)).shape  # doctest: +SKIP
        (9, 9, 3)
    """
    if hasattr(type(crop_window), "__gpupipe_symbol__"):
        crop_window = tuple(crop_window[i] for i in range(4))
    if not hasattr(crop_window, "__len__") or len(crop_window) != 4:
        raise PlanTypeError(f"decode_and_crop_jpeg needs crop_window as (y, x, height, width), got {crop_window!r}")
    image = decode_jpeg(contents, channels, exif_orientation=exif_orientation)
    return crop_to_bounding_box(image, *crop_window)
