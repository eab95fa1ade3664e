"""pillow: images that Pillow opens, which alone decides about formats other than JPEG and PNG."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpupipe.errors import DecodeError
from gpupipe.extract.images.exif import NORMAL, orientation_of

__all__ = ["facts", "opened", "stored_orientation"]

_BITS = {"1": 1, "I": 32, "F": 32}


_WIDTH, _HEIGHT, _ORIENTATION = 256, 257, 274  # tags of a TIFF


@contextmanager
def opened(data: bytes | bytearray | memoryview, kind: str) -> Iterator[Any]:
    """Open an image as a `PIL.Image.Image`, for as long as the block runs.

    Args:
        data: the encoded image.
        kind: the `ImageHeader.format`.

    Raises:
        DecodeError: Pillow fails, here or in the block.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data), formats=[kind.upper()]) as image:
            yield image
    except (DecodeError, MemoryError):
        raise
    except UnidentifiedImageError as error:  # its text contains a memory address
        raise DecodeError(
            f"a {kind.upper()} that Pillow reads is needed, this one is damaged or of another kind; read such a file "
            "in an ops.py_function, with tifffile for example"
        ) from error
    except Exception as error:  # its readers raise all kinds of exceptions on damaged bytes
        raise DecodeError(f"damaged {kind.upper()}: {error}") from error


def facts(image: Any) -> tuple[int, int, int, int, int]:
    """Return (height, width, channels, orientation, bits) of an image that was opened and not loaded."""
    width, height = image.size
    channels, orientation = len(image.getbands()), NORMAL
    if image.format == "TIFF":
        width, height, orientation = image.tag_v2[_WIDTH], image.tag_v2[_HEIGHT], stored_orientation(image)
    elif image.format == "WEBP":
        orientation = orientation_of(image.info.get("exif", b"").removeprefix(b"Exif\0\0"))
    if image.mode == "P" or image.format == "GIF":
        channels = 1 if image.format == "BMP" and _is_gray(image.palette) else 3
    bits = 16 if image.mode.startswith("I;16") else _BITS.get(image.mode, 8)
    return height, width, channels, orientation, bits


def _is_gray(palette: Any) -> bool:
    colours, entry = palette.palette, len(palette.rawmode)
    return bool(colours[0::entry] == colours[1::entry] == colours[2::entry])


def stored_orientation(image: Any) -> int:
    """Return the orientation of a TIFF before it is loaded: loading rotates it upright."""
    orientation = image.tag_v2.get(_ORIENTATION) if image.format == "TIFF" else NORMAL
    return orientation if orientation in range(1, 9) else NORMAL
