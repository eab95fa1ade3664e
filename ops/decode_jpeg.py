"""decode_jpeg: decode photographs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.decoding import Decoding

__all__ = ["DecodeJpeg", "decode_jpeg"]


@dataclass(frozen=True, slots=True)
class DecodeJpeg(Decoding):
    """Decode a JPEG, or any other format of `Decoding`: photographs with the wrong name are common.

    On the CPU all executors give libjpeg's pixels. On the GPU the decoder may differ by a few of 255.

    Shapes: ``bytes -> uint8[H,W,C]{HWC}``
    """

    legal: ClassVar[tuple[int, ...]] = (0, 1, 3)


def decode_jpeg(contents: Any, channels: int = 0, *, exif_orientation: bool = False) -> Any:
    """Decode a JPEG.

    Args:
        contents: the bytes of the file. PNG, WebP, BMP and TIFF are decoded too.
        channels: 3 RGB, 1 gray (the Y plane), 0: 1 for a gray image and 3 for any other, also one with transparency.
        exif_orientation: turn the image upright as its EXIF block says. False is TensorFlow's and plain Pillow's way.

    Shapes: ``bytes -> uint8[H,W,C]{HWC}``

    Raises:
        SpecError: `contents` is not bytes, or `channels` is none of 0, 1, 3.
        DecodeError: at run time: no image, or a damaged one; a JPEG without its end marker is one, also if zeros fill
            its place.

    Example:
        >>> decode_jpeg(open("photograph.jpg", "rb").read(), channels=3)  # doctest: +SKIP
    """
    return apply(DecodeJpeg(channels, exif_orientation), contents)
