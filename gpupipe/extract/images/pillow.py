"""pillow: images that Pillow opens, which alone decides about formats other than JPEG, PNG and plain BMP."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from gpupipe.errors import DecodeError, shown_cause
from gpupipe.extract.images.exif import NORMAL, orientation_of

__all__ = ["facts", "in_strips", "opened", "sample_bits", "stored_orientation", "white_is_zero"]

_BITS = {"1": 1, "I": 32, "F": 32}


_WIDTH, _HEIGHT, _BITS_PER_SAMPLE, _PHOTOMETRIC, _ORIENTATION = 256, 257, 258, 262, 274  # tags of a TIFF


@contextmanager
def opened(data: bytes | bytearray | memoryview, kind: str) -> Iterator[Any]:
    """Open an image as a `PIL.Image.Image`, for as long as the block runs.

    Args:
        data: the encoded image.
        kind: the `ImageHeader.format`.

    Raises:
        DecodeError: Pillow fails, here or in the block.
    """
    from PIL import UnidentifiedImageError

    try:
        with _opened(data, kind.upper()) as image:
            if kind == "bmp":
                _check_length(data, image)
            yield image
    except (DecodeError, MemoryError):
        raise
    except UnidentifiedImageError as error:  # its text contains a memory address
        raise DecodeError(
            f"a {kind.upper()} that Pillow reads is needed, this one is truncated, damaged or of another kind; "
            f"read one of another kind in an ops.py_function{', with tifffile for example' * (kind == 'tiff')}"
        ) from error
    except Exception as error:  # its readers raise all kinds of exceptions on damaged bytes
        raise DecodeError(f"damaged {kind.upper()}: {error}") from shown_cause(error)


def _opened(data: bytes | bytearray | memoryview, kind: str) -> Any:
    """Open an image of one format as `Image.open` does, which prints a warning about those that are large.

    Raises:
        DecodeError: it has more pixels than Pillow allows, whatever `Options.max_pixels` is.
        UnidentifiedImageError: it is of another format.
        Exception: it is damaged.
    """
    from PIL import Image, UnidentifiedImageError

    Image.preinit()
    if kind not in Image.OPEN:
        Image.init()
    make, accepts = Image.OPEN[kind]
    stream = io.BytesIO(data)
    try:
        image = make(stream, "") if accepts is None or accepts(bytes(data[:16])) is True else None
    except (SyntaxError, IndexError, TypeError, struct.error) as error:  # for these, `Image.open` tries other formats
        raise UnidentifiedImageError from error
    if image is None:
        raise UnidentifiedImageError
    most = 2 * (Image.MAX_IMAGE_PIXELS or 0)
    width, height = image.size
    if 0 < most < width * height:
        raise DecodeError(f"a {kind} may have {most} pixels, the limit of Pillow, got {width * height}")
    return image


STRIP = 1 << 22
"""Pixels of a strip."""


def in_strips(image: Any, taken: Callable[[Any], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Take the pixels of an image, of a large one strip by strip, so that no copy on the way is as large as it is.

    Args:
        image: opened by `opened`; it is decoded here.
        taken: takes the pixels of an image or of some rows of it, each from the same pixel alone: T[H,W,C].

    Raises:
        EOFError: a WebP is damaged.
    """
    width, height = image.size
    if width * height <= 2 * STRIP:
        return taken(image)
    strip = (_strips_of_webp(image) if image.format == "WEBP" else None) or _strips_of(image)
    rows = max(1, STRIP // width)
    first = taken(strip(0, min(rows, height)))
    out = np.empty((height, *first.shape[1:]), first.dtype)
    out[:rows] = first
    for top in range(rows, height, rows):
        out[top : top + rows] = taken(strip(top, min(top + rows, height)))
    return out


def _strips_of(image: Any) -> Callable[[int, int], Any]:
    """What makes some rows of an image, which is decoded here."""
    image.load()
    return lambda top, bottom: image.crop((0, top, image.size[0], bottom))


def _strips_of_webp(image: Any) -> Callable[[int, int], Any] | None:
    """What makes some rows of a WebP, as images like it; None if Pillow is to decode it as any other.

    Pillow holds the decoder of a WebP, with two canvases of its size, as long as the image. So the canvas that the
    decoder returns is taken from it, and the decoder dropped, before there is an image.
    """
    from PIL import Image

    decoder: Any = getattr(image, "_decoder", None)
    mode, raw = str(image.mode), str(getattr(image, "rawmode", ""))
    if not hasattr(decoder, "get_next") or (mode, raw) not in (("RGB", "RGBX"), ("RGBA", "RGBA")):
        return None
    found = decoder.get_next()
    if found is None:
        raise EOFError("failed to decode next frame in WebP file")  # as Pillow says it
    image._decoder = decoder = None
    canvas = memoryview(found[0])
    width, size = image.size[0], 4 * image.size[0]

    def strip(top: int, bottom: int) -> Any:
        return Image.frombytes(mode, (width, bottom - top), canvas[top * size : bottom * size], "raw", raw)

    return strip


def _check_length(data: bytes | bytearray | memoryview, image: Any) -> None:
    """Check that an uncompressed BMP has all its rows: Pillow lets one pass that lacks less than their padding."""
    if image.info.get("compression") != 0:
        return
    start, head = (int.from_bytes(data[at : at + 4], "little") for at in (10, 14))
    at = 24 if head == 12 else 28  # an OS/2 header has sides of 16 bits
    bits = int.from_bytes(data[at : at + 2], "little")
    needed = start + -(-image.width * bits // 32) * 4 * image.height
    if len(data) < needed:
        raise DecodeError(f"truncated BMP: {needed} bytes are needed, {len(data)} are there")


def facts(image: Any) -> tuple[int, int, int, int, int]:
    """Return (height, width, channels, orientation, bits) of an image that was opened and not loaded."""
    width, height = image.size
    channels, orientation = len(image.getbands()), NORMAL
    if image.format == "TIFF":
        width, height, orientation = image.tag_v2[_WIDTH], image.tag_v2[_HEIGHT], stored_orientation(image)
    elif image.format == "WEBP":
        orientation = orientation_of(image.info.get("exif", b"").removeprefix(b"Exif\0\0"), _xmp(image))
    if image.mode == "P" or image.format == "GIF":
        channels = 1 if image.format == "BMP" and _is_gray(image.palette) else 3
    bits = 16 if image.mode.startswith("I;16") else _BITS.get(image.mode, 8)
    return height, width, channels, orientation, bits


def _is_gray(palette: Any) -> bool:
    colours, entry = palette.palette, len(palette.rawmode)
    return bool(colours[0::entry] == colours[1::entry] == colours[2::entry])


def stored_orientation(image: Any) -> int:
    """Return the orientation of a TIFF before it is loaded: loading rotates it upright."""
    if image.format != "TIFF":
        return NORMAL
    orientation = image.tag_v2.get(_ORIENTATION) if _ORIENTATION in image.tag_v2 else orientation_of(b"", _xmp(image))
    return orientation if orientation in range(1, 9) else NORMAL


def _xmp(image: Any) -> bytes:
    """The XMP packet of an image, empty if it has none."""
    found = image.info.get("xmp")
    return found if isinstance(found, bytes) else b""


def sample_bits(image: Any) -> int:
    """Return the bits of a sample of a TIFF."""
    return int(min(image.tag_v2.get(_BITS_PER_SAMPLE, (1,))))


def white_is_zero(image: Any) -> bool:
    """Whether the smallest sample of an image is white, as a gray TIFF may say."""
    return bool(image.format == "TIFF" and image.tag_v2.get(_PHOTOMETRIC) == 0)
