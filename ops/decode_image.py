"""decode_image: decode an image of any known format."""

from __future__ import annotations

from typing import Any, Literal

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.ops._shared.decoding import Decoding, decode_call

__all__ = ["DecodeImage", "decode_image"]


@dataclass(frozen=True, slots=True)
class DecodeImage(Decoding):
    """Decode JPEG, PNG, WebP, BMP or TIFF as gray or RGB.

    Shapes: ``bytes -> uint8[H,W,C]{HWC}``
    """


def decode_image(
    contents: Any,
    channels: int = 0,
    dtype: Any = "uint8",
    *,
    palette: Literal["colors", "indices"] = "colors",
    expand_animations: bool = False,
    exif_orientation: bool = False,
) -> Any:
    """Decode JPEG, PNG, WebP, BMP or TIFF, detected from the bytes, as `tf.io.decode_image` does.

    Args:
        contents: the bytes of the file.
        channels: 3 RGB (transparency is dropped, not blended), 1 gray. 4 (RGBA) and 0 (as many as the image has)
            are decoded on the host. A palette counts as RGB, with transparent colours as RGBA, a gray BMP one as gray.
            A TIFF of more than 4 channels needs 0. One of several channels that are not uint8 is read by tifffile.
        dtype: uint8: of 16-bit samples the upper 8 bits. uint16: 16-bit samples in full, those of 8 bits times 257 from
            a PNG, times 256 from any other file. float32: integers scaled to 0..1, a TIFF of float32 as it is. All but
            uint8 is decoded on the host.
        palette: "indices" gives the index of each pixel in the palette instead of its colour, as masks of classes need
            it, and the samples of a gray image as stored. ``dtype[H,W,1]``, not scaled; decoded on the host.
        expand_animations: must be False, since animations are not decoded.
        exif_orientation: rotate the image upright by its EXIF orientation.

    Shapes: ``bytes -> dtype[H,W,C]{HWC}``

    Raises:
        SpecError: `contents` is not bytes, or an argument is not one of these values.
        DecodeError: at run time: the bytes are not an image, or are a damaged one or a GIF; floats are asked for as
            integers; for "indices" an image with neither a palette nor only gray, or one of 16 bits as uint8.
        MissingDependencyError: at run time: a TIFF needs tifffile, which is not installed.

    Example:
        >>> decode_image(open("photograph.webp", "rb").read(), channels=3)  # doctest: +SKIP
    """
    if expand_animations:
        raise SpecError("decode_image needs expand_animations=False, got True; animations and GIF are not decoded")
    return decode_call(DecodeImage, contents, channels, dtype, palette, exif_orientation)
