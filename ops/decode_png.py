"""decode_png: decode PNG."""

from __future__ import annotations

from typing import Any, Literal

from gpupipe.classes import dataclass
from gpupipe.ops._shared.decoding import Decoding, decode_call

__all__ = ["DecodePng", "decode_png"]


@dataclass(frozen=True, slots=True)
class DecodePng(Decoding):
    """Decode a PNG as gray or RGB.

    Shapes: ``bytes -> uint8[H,W,C]{HWC}``
    """


def decode_png(
    contents: Any,
    channels: int = 0,
    dtype: Any = "uint8",
    *,
    palette: Literal["colors", "indices"] = "colors",
    exif_orientation: bool = False,
) -> Any:
    """Decode a PNG as `tf.io.decode_png` does.

    Args:
        contents: the bytes of the file. JPEG, WebP, BMP and TIFF are decoded too.
        channels: 3 RGB (transparency is dropped, not blended), 1 gray. 4 (RGBA) and 0 (as many as the image has)
            are decoded on the host. A palette counts as RGB, with transparent colours as RGBA, a gray BMP one as gray.
        dtype: uint8: of 16-bit samples the upper 8 bits. uint16, decoded on the host: 16-bit samples in full, those of
            8 bits times 257.
        palette: "indices" gives the index of each pixel in the palette instead of its colour, as masks of classes need
            it, and the samples of a gray image as stored: 0 or 1 for a file of one bit. ``dtype[H,W,1]``, not scaled;
            decoded on the host.
        exif_orientation: rotate the image upright by its EXIF orientation.

    Shapes: ``bytes -> dtype[H,W,C]{HWC}``

    Raises:
        SpecError: `contents` is not bytes, or an argument is not one of these values.
        DecodeError: at run time: the bytes are not an image, or are a damaged one; for "indices" an image with neither
            a palette nor only gray, or one of 16 bits as uint8.

    Example:
        >>> decode_png(open("mask.png", "rb").read(), palette="indices")  # doctest: +SKIP
    """
    return decode_call(DecodePng, contents, channels, dtype, palette, exif_orientation)
