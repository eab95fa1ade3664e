"""decode: an encoded image as an array, on the host. What DALI's decoders give on the CPU, without DALI.

JPEG goes through libjpeg-turbo (simplejpeg), and the damaged files that DALI accepts are accepted here, with the same
pixels (see `_jpeg`); everything else, and every JPEG where simplejpeg is missing, through Pillow. Both work without the
GIL.
"""

from __future__ import annotations

import contextlib
import io
import struct
import zlib
from collections.abc import Callable
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from gpupipe.errors import DecodeError
from gpupipe.extract.images.containers import has_all_rows, without_ancillary, without_orientation
from gpupipe.extract.images.exif import NORMAL, segment_of
from gpupipe.extract.images.headers import (
    ImageHeader,
    check_complete,
    check_decodable,
    has_adobe_marker,
    read_header,
    without_header_warnings,
)
from gpupipe.extract.images.scans import first_marker_in_scan
from gpupipe.options import MAX_PIXELS

__all__ = ["as_plain", "decode", "upright"]

Array = npt.NDArray[Any]


Encoded = bytes | bytearray | memoryview


MOST_PIXELS: ContextVar[int] = ContextVar("gpupipe_most_pixels", default=MAX_PIXELS)
"""How many pixels an image may have: those that run a chain set it to its `Options.max_pixels`."""


_GRAY, _RGB, _CMYK = 1, 3, 4


_NO_END = b"\xff\x02" * 0x8010
"""A marker that there is not, over and over, longer than any segment: what reads beyond the end of the data meets it.

Without it simplejpeg would read an end marker there, where nvImageCodec refuses.
"""


_DAMAGED = (OSError, SyntaxError, ValueError, EOFError, KeyError, IndexError, TypeError, struct.error, zlib.error)
"""What Pillow's readers are known to raise over damaged bytes."""


def decode(data: Encoded, channels: int = 3, exif_orientation: bool = False) -> Array:
    """Decode an image of any known format but GIF.

    Args:
        data: the encoded image.
        channels: 1 gray, 3 RGB (transparency is dropped, not blended), 4 RGBA, 0 as many as the image has; a palette
            counts as RGB, or as RGBA if it has transparent colours, but a gray one of a BMP as gray.
        exif_orientation: turn the image upright as its EXIF block says.

    Returns:
        uint8[H,W,C], contiguous: of 16-bit samples the upper 8 bits, as TensorFlow and libpng take them.

    Raises:
        DecodeError: no image, a damaged or truncated one, a GIF, samples of 32 bits, or more pixels than `MOST_PIXELS`.
    """
    header = read_header(data, orientation=exif_orientation)
    check_complete(data, header)
    if header.height * header.width > MOST_PIXELS.get():
        raise DecodeError(
            f"an image may have {MOST_PIXELS.get()} pixels (Options.max_pixels), got {header.height}x{header.width}"
        )
    check_decodable(header.format, header.bits)
    if channels == 0 and header.channels == _GRAY:
        channels = _GRAY
    turbo = _turbo() if header.format == "jpeg" and header.channels in (_GRAY, _RGB, _CMYK) and channels != 4 else None
    if turbo is None:
        image = _pillow(data, header, channels)
    elif header.channels == _CMYK:
        image = _without_black(_jpeg(turbo, data, header, "CMYK"), has_adobe_marker(data))
        image = _luma(image) if channels == _GRAY else image
    else:
        image = _jpeg(turbo, data, header, "GRAY" if channels == _GRAY else "RGB")
    return upright(image, header.orientation) if exif_orientation else image


def as_plain(data: Encoded, gray: bool, exif_orientation: bool | None) -> bytes:
    """Decode an image whose header was checked, and give it to another decoder as a BMP, which none gets wrong.

    Args:
        data: the encoded image, of any known format but GIF.
        gray: make a gray BMP; else one of the colours, gray as well if the image is.
        exif_orientation: turn the image upright as its EXIF block says; None leaves that to the other decoder: then an
            image that is to be turned becomes a PNG that says so.

    Raises:
        DecodeError: it is damaged.
    """
    from PIL import Image

    before = MOST_PIXELS.get()
    try:
        MOST_PIXELS.set(1 << 62)  # Options.max_pixels may be above the default
        header = read_header(data, orientation=exif_orientation is None)
        one = gray or header.channels == _GRAY
        image = decode(data, _GRAY if one else _RGB, bool(exif_orientation))
    finally:
        MOST_PIXELS.set(before)
    stream, how = io.BytesIO(), {}
    if header.orientation != NORMAL:
        how = {"exif": segment_of(header.orientation)[4:], "compress_level": 1}
    Image.fromarray(image[:, :, 0] if one else image).save(stream, "PNG" if how else "BMP", **how)
    return stream.getvalue()


def upright(image: Array, orientation: int) -> Array:
    """Turn an image as EXIF's orientation 1..8 asks for."""
    if orientation == 1:
        return image
    if orientation >= 5:
        image = image.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    return np.ascontiguousarray(image)


def _jpeg(turbo: Callable[..., Array], data: Encoded, header: ImageHeader, space: str) -> Array:
    """Decode a JPEG, damaged or not, exactly where nvImageCodec (DALI's decoder, libjpeg-turbo as well) does.

    What the first try refuses is damaged, and is decoded again with more care.
    """
    try:
        return turbo(data, colorspace=space, strict=True)
    except ValueError as error:
        plain = without_header_warnings(data)
        if plain is not None:
            return _jpeg(turbo, plain, header, space)
        if "subsampling level" in str(error):
            return _of_any_sampling(data, header, space)
        image = _damaged(turbo, bytes(data) + _NO_END if header.progressive else data, header, space)
        cut = None if image is not None or header.progressive else first_marker_in_scan(data, header.channels)
        if cut is not None:
            # A flipped bit made a marker behind the last row: libjpeg stumbles over it when it looks for the end.
            image = _damaged(turbo, bytes(data[:cut]) + b"\xff\xd9", header, space)
        if image is None:
            raise DecodeError(f"damaged JPEG: {error}") from error
        return image


def _of_any_sampling(data: Encoded, header: ImageHeader, space: str) -> Array:
    """Decode a JPEG whose sampling factors simplejpeg has no name for. libjpeg knows all, and Pillow asks libjpeg."""
    channels, mode = {"GRAY": (_GRAY, ""), "RGB": (_RGB, ""), "CMYK": (_CMYK, "CMYK")}[space]
    try:
        image = _pillow(data, header, channels, mode)
    except DecodeError:
        cut = None if header.progressive else first_marker_in_scan(data, header.channels)
        if cut is None:
            raise
        image = _pillow(bytes(data[:cut]) + b"\xff\xd9", header, channels, mode)
    return 255 - image if mode else image  # Pillow takes every CMYK for an inverted one


def _damaged(turbo: Callable[..., Array], data: Encoded, header: ImageHeader, space: str) -> Array | None:
    """Decode a damaged JPEG if it has all its rows; else None.

    `strict=False` lets every error pass that has a warning before it, also one that left the rows as they were. Two
    arrays of different contents tell which were written.
    """
    size = header.height * header.width * {"GRAY": 1, "RGB": 3, "CMYK": 4}[space]
    try:
        first, second = (
            turbo(data, colorspace=space, strict=False, buffer=np.full(size, fill, np.uint8)) for fill in (0, 255)
        )
    except ValueError:
        return None
    return first if np.array_equal(first, second) else None


def _without_black(cmyk: Array, inverted: bool) -> Array:
    """RGB of CMYK as DALI and TensorFlow compute it; Adobe stores it inverted, and says so by its marker."""
    ink = cmyk.astype(np.uint16)
    if not inverted:
        ink = 255 - ink
    return (ink[:, :, :3] * ink[:, :, 3:] // 255).astype(np.uint8)


def _luma(rgb: Array) -> Array:
    """Gray of RGB by ITU-R 601-2, in Pillow's arithmetic."""
    weights = np.array([19595, 38470, 7471], np.uint32)
    return ((rgb @ weights + 0x8000) >> 16).astype(np.uint8)[:, :, None]


@lru_cache(1)
def _turbo() -> Callable[..., Array] | None:
    """Simplejpeg's decoder, None if it cannot be imported; looked for once."""
    try:
        from simplejpeg import decode_jpeg
    except ImportError:
        return None
    return decode_jpeg  # type: ignore[no-any-return]


def _pillow(data: Encoded, header: ImageHeader, channels: int, mode: str = "") -> Array:
    from PIL import Image, UnidentifiedImageError

    try:
        return _opened(Image, data, header, channels, mode)
    except (Image.DecompressionBombError, *_DAMAGED) as error:
        if header.format == "png" and len(bare := without_ancillary(data)) < len(data):
            # Pillow stops at a damaged chunk that no pixel needs, DALI does not.
            with contextlib.suppress(*_DAMAGED):
                return _opened(Image, bare, header, channels, mode)
        reason = (
            "not one of its kind" if isinstance(error, UnidentifiedImageError) else error
        )  # its text has an address
        raise DecodeError(f"damaged {header.format}: {reason}") from error


def _opened(pillow: Any, data: Encoded, header: ImageHeader, channels: int, mode: str) -> Array:
    data = without_orientation(data) if header.format == "tiff" else data
    with pillow.open(io.BytesIO(data), formats=[header.format.upper()]) as image:
        if header.format == "jpeg" and channels == _GRAY:
            image.draft("L", image.size)  # gray is the Y plane, as in libjpeg, DALI and TensorFlow
        if header.format == "png" and _ends_in_nothing(image, header) and not has_all_rows(data):
            raise ValueError("its last rows are missing")
        if mode and image.mode != mode:
            raise ValueError(f"its header says {mode}, it is {image.mode}")
        return np.array(image) if mode else _array(image, header, channels)


def _ends_in_nothing(image: Any, header: ImageHeader) -> bool:
    """Whether a PNG may lack rows: its last one is zero, or it is interlaced, where any may be the last one stored."""
    image.load()
    return header.progressive or not any(image.crop((0, header.height - 1, header.width, header.height)).tobytes())


def _array(image: Any, header: ImageHeader, channels: int) -> Array:
    clear = image.info.pop("transparency", None) if channels in (_GRAY, _RGB) else image.info.get("transparency")
    if image.mode in ("I", "F") and (image.mode == "F" or image.format != "PNG"):
        raise DecodeError(f"samples of 8 or 16 bits are needed, got a {image.format} with 32")
    if image.mode == "I" or image.mode.startswith("I;16"):  # older Pillow reads a 16-bit gray PNG as "I"
        deep = np.asarray(image)
        out = np.repeat((deep >> 8).astype(np.uint8)[:, :, None], channels or 1, axis=2)
        if channels == 4:
            out[:, :, 3] = 255 if clear is None else np.where(deep == clear, 0, 255)
        return out
    if header.format == "png" and isinstance(clear, int | tuple) and image.mode in ("L", "RGB"):
        image.info["transparency"] = _of_eight_bits(clear, header.bits)
    mode = {1: "L", 3: "RGB", 4: "RGBA"}.get(channels) or _native_mode(image, header)
    pixels = np.array(image if image.mode == mode else image.convert(mode))
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def _native_mode(image: Any, header: ImageHeader) -> str:
    if image.mode == "P":
        return "RGBA" if "transparency" in image.info else "RGB"
    if header.channels == 2:
        return "LA"  # of 16 bits Pillow makes RGBA
    return image.mode if image.mode in ("L", "LA", "RGBA") else "L" if image.mode == "1" else "RGB"


def _of_eight_bits(colour: Any, bits: int) -> Any:
    """The transparent colour of a PNG as its pixels are decoded: Pillow compares them with what the file says."""
    if isinstance(colour, tuple):
        return tuple(_of_eight_bits(sample, bits) for sample in colour)
    return colour >> 8 if bits == 16 else colour * 255 // ((1 << bits) - 1)
