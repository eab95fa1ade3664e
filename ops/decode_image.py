"""decode_image: decode an image of any known format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpupipe.errors import SpecError
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.decoding import Decoding, NativeDecoding, check_decoding

__all__ = ["DecodeImage", "decode_image"]


@dataclass(frozen=True, slots=True)
class DecodeImage(Decoding):
    """Decode JPEG, PNG, WebP, BMP or TIFF as gray or RGB.

    Shapes: ``bytes -> uint8[H,W,C]{HWC}``
    """


def decode_image(
    contents: Any, channels: int = 0, *, expand_animations: bool = False, exif_orientation: bool = False
) -> Any:
    """Decode JPEG, PNG, WebP, BMP or TIFF, detected from the bytes; 16-bit samples keep their upper 8 bits.

    Args:
        contents: the bytes of the file.
        channels: 3 RGB (transparency is dropped, not blended), 1 gray. 4 (RGBA) and 0 (as many as the image has)
            are decoded on the host. A palette counts as RGB, with transparent colours as RGBA, a gray BMP one as gray.
        expand_animations: must be False, since animations are not decoded.
        exif_orientation: rotate the image upright by its EXIF orientation.

    Shapes: ``bytes -> uint8[H,W,C]{HWC}``

    Raises:
        SpecError: `contents` is not bytes, or an argument is out of range.
        DecodeError: at run time: the bytes are not an image, or are a damaged one or a GIF.

    Example:
        >>> decode_image(open("photograph.webp", "rb").read(), channels=3)  # doctest: +SKIP
    """
    check_decoding("decode_image", channels, (0, 1, 3, 4))
    if expand_animations:
        raise SpecError("decode_image needs expand_animations=False, got True; animations and GIF are not decoded")
    kind = DecodeImage if channels in (1, 3) else NativeDecoding
    return apply(kind(channels, exif_orientation), contents)
