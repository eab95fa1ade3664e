"""decode: an encoded image as an array, on the host: the pixels of DALI's CPU decoders, without DALI.

JPEG is decoded by libjpeg-turbo (simplejpeg) or, if that fails or is not installed, by Pillow, like all other formats:
a damaged file that DALI accepts is accepted here, with the same pixels. Both decoders release the GIL. The pixels of a
plain BMP are copied, those of a window alone if no more are needed.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpupipe.errors import DecodeError
from gpupipe.extract.images.bmp import as_bmp, plain_bmp
from gpupipe.extract.images.budget import Kept, decoding, peak_bytes
from gpupipe.extract.images.deep import as_dtype, deep_png, gray16, indices_of, with_channels
from gpupipe.extract.images.exif import NORMAL, segment_of
from gpupipe.extract.images.headers import ImageHeader, check_complete, check_decodable, check_pixels, read_header
from gpupipe.extract.images.jpeg import (
    MOST_SCANNED,
    SEQUENTIAL,
    first_marker_in_scan,
    has_adobe_marker,
    has_common_header,
    is_ordinary,
    jpeg_size,
    of_upper_rows,
)
from gpupipe.extract.images.pillow import in_strips, opened, stored_orientation
from gpupipe.extract.images.png import has_all_rows, without_ancillary
from gpupipe.extract.images.region import decode_region
from gpupipe.extract.images.tiff import check_samples, layout_of, read_tiff
from gpupipe.options import MAX_PIXELS

__all__ = ["MOST_PIXELS", "UNBOUNDED", "Dct", "Window", "as_plain", "check_data", "damage_of", "decode", "upright"]

Array = npt.NDArray[Any]


Encoded = bytes | bytearray | memoryview


MOST_PIXELS: ContextVar[int] = ContextVar("gpupipe_most_pixels", default=MAX_PIXELS)
"""How many pixels an image may have; a running chain sets it to its `Options.max_pixels`."""


UNBOUNDED = 1 << 62
"""A number of pixels for images whose headers were checked before: `Options.max_pixels` may exceed the default."""


_GRAY, _RGB, _RGBA = 1, 3, 4

_Pixels = Callable[[Any, Encoded], Array]
"""Takes the pixels of an image that Pillow has opened, and its bytes."""


class Dct(NamedTuple):
    """How libjpeg transforms the blocks of a JPEG.

    Attributes:
        ratio: 1, 2, 4 or 8: blocks become so much smaller, and an image of H x W becomes ceil(H/ratio) x ceil(W/ratio).
        fast: the fast inverse DCT instead of the accurate one, with an error of a few levels.
    """

    ratio: int = 1
    fast: bool = False

    def size(self, header: ImageHeader) -> tuple[int, int]:
        """Height and width of the decoded image."""
        return -(-header.height // self.ratio), -(-header.width // self.ratio)


class Window(NamedTuple):
    """A window of an image, in pixels; what lies beyond the image is left out."""

    top: int
    left: int
    height: int
    width: int

    @property
    def rows(self) -> slice:
        """The rows of the window."""
        return slice(self.top, self.top + self.height)

    @property
    def columns(self) -> slice:
        """The columns of the window."""
        return slice(self.left, self.left + self.width)


_EXACT = Dct()
_ITEMSIZE = {"uint8": 1, "uint16": 2}


def decode(
    data: Encoded,
    channels: int = 3,
    exif_orientation: bool = False,
    most_pixels: int | None = None,
    *,
    dtype: str = "uint8",
    indices: bool = False,
    dct: Dct = _EXACT,
    window: Window | None = None,
    turned: Callable[[Array], Array] | None = None,
) -> Array:
    """Decode an image of any known format but GIF.

    Args:
        data: the encoded image.
        channels: 1 gray, 3 RGB (transparency is dropped, not blended), 4 RGBA, 0 as many as the image has; a palette
            counts as RGB, or as RGBA if it has transparent colours, but the gray palette of a BMP as gray.
        exif_orientation: rotate the image upright as its EXIF block says.
        most_pixels: how many pixels it may have; None for `MOST_PIXELS`.
        dtype: "uint8", "uint16" or "float32"; `as_dtype` says how samples are scaled.
        indices: give the indices of a palette instead of its colours, of a gray image the samples as stored; neither is
            scaled.
        dct: of a JPEG; another format is refused where it is to become smaller.
        window: what is needed of the upright image, in pixels of the smaller one that `dct` makes, and returned; the
            rest of a JPEG is not decoded, and that of a plain BMP not copied, where that makes no difference.
        turned: copies uint8[H,W,3] with its channels the other way round, for plain BMPs; None does so with NumPy.

    Returns:
        dtype[H,W,C], contiguous but for a window; as uint8 the upper 8 bits of 16-bit samples, as in TensorFlow and
        libpng.

    Raises:
        DecodeError: not an image, a damaged or truncated one, a GIF, samples that do not fit `dtype`, too many pixels.
        MissingDependencyError: a TIFF that tifffile alone reads, and it is not installed.
    """
    most = MOST_PIXELS.get() if most_pixels is None else most_pixels
    region_asked = False
    if window is not None and dct is _EXACT and dtype == "uint8" and not (exif_orientation or indices):
        region_asked = _passes_all_checks(data, channels, window, most)
        if region_asked:
            with decoding(peak_bytes("jpeg", window.height, window.width)):
                region = decode_region(data, window, channels == _GRAY)
            if region is not None:
                return region
    header = read_header(data, orientation=exif_orientation)
    check_complete(data, header)
    check_pixels(header.height, header.width, most)
    check_decodable(header.format, header.bits)
    if dct.ratio != 1 and header.format != "jpeg":
        raise DecodeError(f"ratio={dct.ratio} needs a JPEG, got the format {header.format}")
    stored = 0
    if header.format == "tiff" and (layout := layout_of(data)) is not None:
        check_samples(layout)
        stored = layout.pixel_bytes if layout.is_beyond_pillow or layout.is_deep else 0
    with decoding(_peak(header, dct, window, dtype, stored)):
        return _checked(data, header, channels, most, dtype, indices, dct, window, turned, region_asked)


def _peak(header: ImageHeader, dct: Dct, window: Window | None, dtype: str, stored: int) -> int:
    """The bytes that decoding takes at its peak. A sequential JPEG is decoded row by row, and made smaller at once."""
    height, width = header.height, header.width
    if header.format == "jpeg" and not header.progressive:
        height, width = dct.size(header)
    elif header.format == "bmp" and window is not None:  # a plain one, most likely
        height, width = min(height, window.height), min(width, window.width)
    return peak_bytes(header.format, height, width, _ITEMSIZE.get(dtype, 4), stored)


def _checked(
    data: Encoded,
    header: ImageHeader,
    channels: int,
    most: int,
    dtype: str,
    indices: bool,
    dct: Dct,
    window: Window | None,
    turned: Callable[[Array], Array] | None,
    region_asked: bool,
) -> Array:
    """Decode an image whose header was checked; the arguments are those of `decode`."""
    if indices:
        image = _pillow(data, header, lambda image, _: indices_of(image, header))
        if image.dtype != np.uint8 and dtype == "uint8":
            raise DecodeError(f'indices of {header.bits} bits do not fit uint8; decode them with dtype="uint16"')
        return upright(image.astype(dtype, copy=False), header.orientation)
    if header.format == "bmp" and (plain := _plain(data, channels, window, turned)) is not None:
        return as_dtype(plain, dtype, header.format)
    deep = _deep(data, header, channels, dtype != "uint8", most)
    if channels == 0 and header.channels == _GRAY:
        channels = _GRAY
    if deep is None and window is not None and (header.format, header.orientation) == ("jpeg", NORMAL):
        region = None if region_asked or dct != _EXACT else _region(data, header, channels, window)
        if region is not None:
            return as_dtype(region, dtype, header.format)
        deep = _upper_rows(data, header, channels, window.rows.stop, dct)
    if deep is None:
        deep = _jpeg(data, header, channels, dct) if header.format == "jpeg" else _eight(data, header, channels)
    image = upright(as_dtype(deep, dtype, header.format), header.orientation)
    return image if window is None else image[window.rows, window.columns]


def _deep(data: Encoded, header: ImageHeader, channels: int, wide: bool, most: int) -> Array | None:
    """Decode samples of more than 8 bits, if more are wanted, and what Pillow does not read; else None."""
    if header.format == "png":
        whole = wide or (channels == 4 and header.channels == 3)  # which of its colours is transparent
        if not (whole and header.bits == 16):
            return None
        return _pillow(data, header, lambda image, bare: deep_png(image, bare, header.channels, channels))
    layout = layout_of(data) if header.format == "tiff" else None
    if layout is None or not (layout.is_beyond_pillow or (wide and layout.is_deep)):
        return None
    if layout.channels > 4 and channels:
        raise DecodeError(f"an image of 1 to 4 channels is needed, got {layout.channels}; decode it with channels=0")
    image = _pillow(data, header, _one_deep_channel) if layout.channels == 1 else read_tiff(data, layout, 4 * most)
    return with_channels(image, channels)


def _one_deep_channel(image: Any, _: Encoded) -> Array:
    if image.mode != "F" and not image.mode.startswith("I;16"):
        raise DecodeError("a TIFF of 8 or 16 bits without sign, or of float32, is needed, got one of other integers")
    return (np.asarray(image).astype(np.float32) if image.mode == "F" else gray16(image))[:, :, None]


def _plain(
    data: Encoded, channels: int, window: Window | None, turned: Callable[[Array], Array] | None
) -> Array | None:
    """Copy a plain BMP, or a window of it; None if it is none, or is to become gray or transparent."""
    plain = plain_bmp(data)
    if plain is None or channels not in (0, plain.channels, _RGB):
        return None
    rows, columns = (slice(None), slice(None)) if window is None else (window.rows, window.columns)
    image = plain.pixels(data, rows, columns, turned)
    return np.repeat(image, _RGB, axis=2) if channels > plain.channels else image


def as_plain(data: Encoded, gray: bool, exif_orientation: bool | None) -> bytes:
    """Re-encode an image whose header was checked as a BMP, which every decoder gets right.

    Args:
        data: the encoded image, of any known format but GIF.
        gray: make a gray BMP; else a gray one only if the image is gray.
        exif_orientation: rotate the image upright as its EXIF block says; None leaves that to the other decoder: then
            an image with an orientation becomes a PNG that has it.

    Raises:
        DecodeError: the image is damaged.
    """
    header = read_header(data, orientation=exif_orientation is None)
    one = gray or header.channels == _GRAY
    with Kept():  # a large image is copied for the file
        image = decode(data, _GRAY if one else _RGB, bool(exif_orientation), UNBOUNDED)
        if header.orientation == NORMAL:
            return as_bmp(image)
        from PIL import Image

        stream, exif = io.BytesIO(), segment_of(header.orientation)[4:]
        Image.fromarray(image[:, :, 0] if one else image).save(stream, "PNG", exif=exif, compress_level=1)
        return stream.getvalue()


def damage_of(data: Encoded) -> str:
    """What libjpeg warns of in the compressed data of a JPEG that it decodes; "" if it finds no damage.

    Errors are not damage in this sense, nor is a kind that simplejpeg does not read at all.
    """
    turbo = _turbo()
    if turbo is None or bytes(data[:2]) != b"\xff\xd8":
        return ""
    try:
        height, width, *_ = jpeg_size(data)
    except DecodeError:  # an error is not damage
        return ""
    with decoding(peak_bytes("jpeg", height, width)):
        try:
            turbo(data, colorspace="GRAY", strict=True)
            return ""
        except ValueError as error:
            with contextlib.suppress(ValueError):
                turbo(data, colorspace="GRAY", strict=False)
                return str(error)
            return ""


def check_data(data: Encoded) -> None:
    """Refuse a JPEG whose compressed data is damaged.

    Raises:
        DecodeError: libjpeg warns of it.
    """
    if damage := damage_of(data):
        raise DecodeError(f"damaged JPEG, and Options.strict_images refuses those that can be decoded, too: {damage}")


def upright(image: Array, orientation: int) -> Array:
    """Rotate and flip an image as EXIF's orientation 1..8 says."""
    if orientation == 1:
        return image
    if orientation >= 5:
        image = image.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    return np.ascontiguousarray(image)


def _jpeg(data: Encoded, header: ImageHeader, channels: int, dct: Dct = _EXACT) -> Array:
    """Decode a JPEG, damaged or not, if nvImageCodec (DALI's decoder, also libjpeg-turbo) does.

    simplejpeg rejects damaged files and subsamplings it has no name for. Pillow, like nvImageCodec, decodes what
    libjpeg only warns about, and rejects what it cannot continue with.
    """
    turbo = _turbo()
    if turbo is not None and header.channels in (_GRAY, _RGB) and channels != _RGBA:
        space = "GRAY" if channels == _GRAY else "RGB"
        if dct != _EXACT:
            height, width = dct.size(header)
            turbo = partial(turbo, fastdct=dct.fast, min_height=height, min_width=width)
        with contextlib.suppress(ValueError):
            return turbo(data, colorspace=space, strict=True)
        image = None if header.progressive else _damaged(turbo, data, dct.size(header), space)
        if image is not None:
            return image
    try:
        return _eight(data, header, channels, dct.ratio)
    except DecodeError:
        cut = None if header.progressive else first_marker_in_scan(data, header.channels)
        if cut is None:
            raise
        # A flipped bit made a marker after the last row, on which libjpeg fails when it looks for the end.
        return _jpeg(bytes(data[:cut]) + b"\xff\xd9", header, channels, dct)


def _passes_all_checks(data: Encoded, channels: int, window: Window, most: int) -> bool:
    """Whether a JPEG is sure to pass all checks of `decode`, and a window of it those of `_region`.

    Nearly every image is. Making the checks one by one takes ten times as long as in a loop over them: each image that
    is decoded drives their code from the CPU's caches.
    """
    n = len(data)
    if n < 4 or data[0] != 0xFF or data[1] != 0xD8 or data[n - 2] != 0xFF or data[n - 1] != 0xD9:
        return False
    height, width, stored, frame, bits = jpeg_size(data)
    top, left, rows, columns = window
    return (
        frame in SEQUENTIAL
        and columns > 1
        and has_common_header(data)
        and bits == 8
        and stored in (_GRAY, _RGB)
        and channels in (_GRAY, _RGB)
        and height * width <= most
        and n * height * width <= MOST_SCANNED
        and 0 <= top < top + rows <= height
        and 0 <= left < left + columns <= width
    )


def _region(data: Encoded, header: ImageHeader, channels: int, window: Window) -> Array | None:
    """Decode a window of a JPEG as nvImageCodec does; None if it does not, or is not sure to agree with the others."""
    top, left, height, width = window
    inside = min(top, left) >= 0 and top + height <= header.height and left + width <= header.width
    if not inside or min(height, width) < 1 or channels not in (_GRAY, _RGB) or not is_ordinary(data):
        return None
    if width > 1 or header.width == 1:
        return decode_region(data, window, channels == _GRAY)
    # libjpeg interpolates the colours of one column from that column alone, those of two as in the whole image
    first = min(left, header.width - 2)
    two = decode_region(data, Window(top, first, height, 2), channels == _GRAY)
    return None if two is None else two[:, left - first :][:, :1]


def _upper_rows(data: Encoded, header: ImageHeader, channels: int, rows: int, dct: Dct) -> Array | None:
    """Decode a JPEG without damage down to some row of the result; None if there is damage, or nothing to save.

    The pixels are those of the whole image. simplejpeg writes all rows before it finds that the scan goes on, which it
    reports like damage: bytes before the end marker.
    """
    turbo = _turbo()
    if turbo is None or header.channels not in (_GRAY, _RGB) or channels not in (_GRAY, _RGB):
        return None
    shorter = of_upper_rows(data, max(rows, 1) * dct.ratio)
    if shorter is None:
        return None
    height, width = dct.size(replace(header, height=shorter[1]))
    image, space = np.empty((height, width, channels), np.uint8), "GRAY" if channels == _GRAY else "RGB"
    how = {} if dct == _EXACT else {"fastdct": dct.fast, "min_height": height, "min_width": width}
    try:
        turbo(shorter[0], colorspace=space, strict=True, buffer=image, **how)
    except ValueError as error:
        if "extraneous bytes before marker 0xd9" not in str(error):
            return None
    return image


def _damaged(turbo: Callable[..., Array], data: Encoded, size: tuple[int, int], space: str) -> Array | None:
    """Decode a damaged JPEG if it has all its rows; else None. Pillow resynchronises differently between restarts.

    With `strict=False` simplejpeg ignores any error that follows a warning, even one that left rows unwritten. Decoding
    into two buffers of different contents shows whether all rows were written.
    """
    count = size[0] * size[1] * (1 if space == "GRAY" else 3)
    buffers = (np.full(count, fill, np.uint8) for fill in (0, 255))
    with contextlib.suppress(ValueError):
        first, second = (turbo(data, colorspace=space, strict=False, buffer=buffer) for buffer in buffers)
        return first if np.array_equal(first, second) else None
    return None


@lru_cache(1)
def _turbo() -> Callable[..., Array] | None:
    """Return simplejpeg's decoder, None if it cannot be imported."""
    try:
        from simplejpeg import decode_jpeg
    except ImportError:
        return None
    decoder: Callable[..., Array] = decode_jpeg
    return decoder


def _eight(data: Encoded, header: ImageHeader, channels: int, ratio: int = 1) -> Array:
    """Decode an image to 8 bits with Pillow."""
    gray = header.format == "jpeg" and channels == _GRAY
    return _pillow(data, header, lambda image, data: _array(image, data, header, channels), gray, ratio)


def _pillow(data: Encoded, header: ImageHeader, pixels: _Pixels, gray: bool = False, ratio: int = 1) -> Array:
    """Open an image with Pillow and take its pixels, as stored."""
    try:
        return _read(data, header, pixels, gray, ratio)
    except DecodeError:
        if header.format != "png" or len(bare := without_ancillary(data)) == len(data):
            raise
        # Pillow fails on a damaged chunk that no pixel needs, DALI does not.
        return _read(bare, header, pixels, gray, ratio)


def _read(data: Encoded, header: ImageHeader, pixels: _Pixels, gray: bool, ratio: int) -> Array:
    with opened(data, header.format) as image:
        if gray or ratio != 1:  # "L" is the Y plane, as in libjpeg, DALI and TensorFlow
            smaller = [max(side // ratio, 1) for side in image.size]
            wanted = tuple(-(-side // ratio) for side in image.size)
            image.draft("L" if gray else image.mode, smaller)
            if image.size != wanted:
                raise ValueError(f"Pillow makes only images larger than {ratio} x {ratio} smaller by {ratio}")
        if header.format == "png" and _ends_in_nothing(image, header) and not has_all_rows(data):
            raise ValueError("its last rows are missing")
        turned = stored_orientation(image)
        return upright(pixels(image, data), {6: 8, 8: 6}.get(turned, turned))  # the inverse: as stored


def _without_black(image: Any, inverted: bool) -> Any:
    """Convert CMYK to RGB as DALI and TensorFlow do; Adobe stores it inverted, which its marker tells."""
    from PIL import Image

    light = np.asarray(image).astype(np.uint16)  # Pillow takes every CMYK for inverted
    if inverted:
        light = 255 - light
    return Image.fromarray((light[:, :, :3] * light[:, :, 3:] // 255).astype(np.uint8))


def _ends_in_nothing(image: Any, header: ImageHeader) -> bool:
    """Whether a PNG may lack rows: its last row is zero, or it is interlaced, so that any row may be stored last."""
    image.load()
    return header.progressive or not any(image.crop((0, header.height - 1, header.width, header.height)).tobytes())


def _array(image: Any, data: Encoded, header: ImageHeader, channels: int) -> Array:
    if header.format == "jpeg" and image.mode == "CMYK":
        inverted = has_adobe_marker(data)
        return in_strips(image, lambda strip: _converted(_without_black(strip, inverted), header, channels, None))
    clear = image.info.pop("transparency", None) if channels in (_GRAY, _RGB) else image.info.get("transparency")
    if image.mode in ("I", "F") and (image.mode == "F" or image.format != "PNG"):
        way = '; decode floats with dtype="float32"' * (image.mode == "F")
        raise DecodeError(f"samples of 8 or 16 bits are needed, got a {image.format} with 32{way}")
    if header.format == "png" and isinstance(clear, int | tuple) and image.mode in ("L", "RGB"):
        image.info["transparency"] = _of_eight_bits(clear, header.bits)
    if image.format == "TIFF" and image.mode.startswith("I;16"):
        return _converted(image, header, channels, clear)  # whose white may be zero, which a strip does not say
    return in_strips(image, lambda strip: _converted(strip, header, channels, clear))


def _converted(image: Any, header: ImageHeader, channels: int, clear: Any) -> Array:
    """The pixels of an image or of some of its rows; `clear` is the colour that is transparent, if any."""
    if image.mode == "I" or image.mode.startswith("I;16"):  # older Pillow reads a 16-bit gray PNG as "I"
        deep = gray16(image)
        out = np.repeat((deep >> 8).astype(np.uint8)[:, :, None], channels or 1, axis=2)
        if channels == 4:
            out[:, :, 3] = 255 if clear is None else np.where(deep == clear, 0, 255)
        return out
    mode = {1: "L", 3: "RGB", 4: "RGBA"}.get(channels) or _native_mode(image, header)
    pixels = np.array(image if image.mode == mode else image.convert(mode))
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def _native_mode(image: Any, header: ImageHeader) -> str:
    if image.mode == "P":
        return "RGBA" if "transparency" in image.info else "RGB"
    if header.channels == 2:
        return "LA"  # Pillow reads one of 16 bits as RGBA
    return image.mode if image.mode in ("L", "LA", "RGBA") else "L" if image.mode == "1" else "RGB"


def _of_eight_bits(colour: Any, bits: int) -> Any:
    """Scale the transparent colour of a PNG as its pixels are scaled: Pillow compares them with the file's value."""
    if isinstance(colour, tuple):
        return tuple(_of_eight_bits(sample, bits) for sample in colour)
    return colour >> 8 if bits == 16 else colour * 255 // ((1 << bits) - 1)
