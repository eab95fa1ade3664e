"""decode_jpeg: decode JPEG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.decoding import Decoding

__all__ = ["DecodeJpeg", "decode_jpeg"]


@dataclass(frozen=True, slots=True)
class DecodeJpeg(Decoding):
    """Decode a JPEG, or any other format of `Decoding`: photographs with the wrong extension are common.

    On the CPU all executors give libjpeg's pixels. On the GPU the decoder may differ by a few levels of 255.

    Shapes: ``bytes -> uint8[H,W,C]{HWC}``
    """

    legal: ClassVar[tuple[int, ...]] = (0, 1, 3)


def decode_jpeg(contents: Any, channels: int = 0, *, exif_orientation: bool = False) -> Any:
    """Decode a JPEG.

    Args:
        contents: the bytes of the file. PNG, WebP, BMP and TIFF are decoded too.
        channels: 3 RGB; 1 gray (the Y plane); 0 gives 1 for a gray image and 3 for any other, even with transparency.
        exif_orientation: rotate the image upright by its EXIF orientation. TensorFlow and plain Pillow do not.

    Shapes: ``bytes -> uint8[H,W,C]{HWC}``

    Raises:
        SpecError: `contents` is not bytes, or `channels` is not 0, 1 or 3.
        DecodeError: at run time: the bytes are not an image, or are a damaged one; a JPEG without its end marker is
            damaged, even if zeros fill the marker's bytes.

    Example:
        >>> decode_jpeg(open("photograph.jpg", "rb").read(), channels=3)  # doctest: +SKIP
    """
    return apply(DecodeJpeg(channels, exif_orientation), contents)
