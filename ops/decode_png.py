"""decode_png: decode PNG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.decoding import Decoding, NativeDecoding, check_decoding

__all__ = ["DecodePng", "decode_png"]


@dataclass(frozen=True, slots=True)
class DecodePng(Decoding):
    """Decode a PNG as gray or RGB.

    Shapes: ``bytes -> uint8[H,W,C]{HWC}``
    """


def decode_png(contents: Any, channels: int = 0, *, exif_orientation: bool = False) -> Any:
    """Decode a PNG; 16-bit samples keep their upper 8 bits, as in tf.io.decode_png for uint8.

    Args:
        contents: the bytes of the file. JPEG, WebP, BMP and TIFF are decoded too.
        channels: 3 RGB (transparency is dropped, not blended), 1 gray. 4 (RGBA) and 0 (as many as the image has)
            are decoded on the host. A palette counts as RGB, with transparent colours as RGBA, a gray BMP one as gray.
        exif_orientation: rotate the image upright by its EXIF orientation.

    Shapes: ``bytes -> uint8[H,W,C]{HWC}``

    Raises:
        SpecError: `contents` is not bytes, or `channels` is not 0, 1, 3 or 4.
        DecodeError: at run time: the bytes are not an image, or are a damaged one.

    Example:
        >>> decode_png(open("mask.png", "rb").read(), channels=1)  # doctest: +SKIP
    """
    check_decoding("decode_png", channels, (0, 1, 3, 4))
    if channels in (1, 3):
        return apply(DecodePng(channels, exif_orientation), contents)
    return apply(NativeDecoding(channels, exif_orientation, "decode_png"), contents)
