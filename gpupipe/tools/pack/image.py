"""image: one encoded image as it is stored in a record."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpupipe.errors import DecodeError
from gpupipe.extract.images.bmp import as_bmp
from gpupipe.extract.images.decode import MOST_PIXELS, decode, upright
from gpupipe.extract.images.exif import NORMAL
from gpupipe.extract.images.headers import ImageHeader, check_complete, check_decodable, read_header

__all__ = ["Stored", "as_stored"]

_MOST_SIDE = 65_500
"""Pixels of a side of a JPEG that libjpeg writes."""


_MOST_DECODED = 1 << 30
"""Bytes of the pixels of an image: TensorFlow refuses an Example of 2 GiB."""


class Stored(NamedTuple):
    """An image as it is stored; height and width in pixels, before any EXIF orientation."""

    encoded: bytes
    format: str
    height: int
    width: int


def as_stored(data: bytes, shorter: int | None, quality: int | None) -> Stored:
    """Check an image, and shrink or decode it if that is asked for.

    Args:
        data: the encoded image.
        shorter: what the shorter side is shrunk to, in pixels, as `ops.resize_shorter` does; None to store every image
            as it is. An image that is not larger is stored as it is, too, unless EXIF says that it is to be turned.
        quality: of the JPEG, 1..100, with colour planes of half the resolution (4:2:0). None stores every image, large
            or not, decoded, as a BMP.

    Returns:
        The image: upright if it was encoded again, with as many channels as before, of gray and colour.

    Raises:
        DecodeError: not an image, a damaged one, or one that is too large.
    """
    header = read_header(data, orientation=quality is None or shorter is not None)
    check_complete(data, header)
    check_decodable(header.format, header.bits)
    height, width = header.height, header.width
    if height * width > MOST_PIXELS.get():
        raise DecodeError(f"an image may have {MOST_PIXELS.get()} pixels, got {height}x{width}")
    if quality is not None and (shorter is None or (min(height, width) <= shorter and header.orientation == NORMAL)):
        return Stored(data, header.format.upper(), height, width)
    if shorter is not None:
        scale = min(shorter, height, width)
        height, width = (int(scale * side / min(height, width)) for side in (height, width))
    if quality is not None and max(height, width) > _MOST_SIDE:
        raise DecodeError(f"a JPEG may have {_MOST_SIDE} pixels a side, this image would have {height}x{width}")
    if quality is None and height * width * 3 > _MOST_DECODED:
        raise DecodeError(f"a decoded image may have {_MOST_DECODED} bytes, this one would have {height}x{width}x3")
    pixels = upright(_shrunk(_decoded(data, header, height, width), height, width), header.orientation)
    encoded, kind = (as_bmp(pixels), "BMP") if quality is None else (_encoded(pixels, quality), "JPEG")
    return Stored(encoded, kind, *pixels.shape[:2])


def _decoded(data: bytes, header: ImageHeader, height: int, width: int) -> Any:
    """Decode to uint8[H,W,C], with 1 or 3 channels: a JPEG at the least eighths of its size that are large enough."""
    gray = header.channels <= 2  # 2: with transparency, which is dropped
    if header.format == "jpeg" and header.channels in (1, 3):
        from simplejpeg import decode_jpeg

        try:
            return decode_jpeg(data, "GRAY" if gray else "RGB", min_height=height, min_width=width, strict=True)
        except ValueError:  # damaged, or of a kind it does not know: what is decoded nevertheless, `decode` decides
            return decode(data, 1 if gray else 3)
    return decode(data, 1 if gray else 3)


def _shrunk(pixels: Any, height: int, width: int) -> Any:
    from PIL import Image

    if pixels.shape[:2] == (height, width):
        return pixels
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    small = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))  # Pillow's is with antialias
    return small.reshape(height, width, -1)


def _encoded(pixels: Any, quality: int) -> bytes:
    from simplejpeg import encode_jpeg

    space, planes = ("GRAY", "Gray") if pixels.shape[2] == 1 else ("RGB", "420")
    return bytes(encode_jpeg(pixels, quality, space, planes, fastdct=False))
