"""bmp: plain BMPs, read and written: uncompressed, of 24 bits of colour or 8 bits of gray.

Every library reads and writes these. A window of one is some lines of memory, so it is cheap to cut out. A damaged BMP,
and one of another kind, is for Pillow to decide about.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["PlainBmp", "as_bmp", "is_ordinary", "plain_bmp"]

Array = npt.NDArray[Any]


Encoded = bytes | bytearray | memoryview


_header = struct.Struct("<2sIHHIIiiHHIIiiII")
"""Magic, bytes of the file, two reserved, offset of the pixels; size of what follows, width, height, planes, bits,
compression, bytes of the pixels, pixels a metre across and down, colours of the palette, important ones."""


_INFO = 40  # bytes of the header after the file's own 14


_GRAYS = bytes(byte for level in range(256) for byte in (level, level, level, 0))


_ALL = slice(None)


_MOST_SIDE, _MOST_PIXELS = 1_000_000, 1 << 26
"""Larger ones are left to Pillow, which has limits of its own."""


class PlainBmp(NamedTuple):
    """Where the pixels of a plain BMP are; all of them are in its bytes.

    Attributes:
        height: in pixels.
        width: in pixels.
        channels: 1 or 3.
        start: offset of the pixels.
        downwards: whether the top row is stored first.
    """

    height: int
    width: int
    channels: int
    start: int
    downwards: bool

    def pixels(
        self,
        data: Encoded,
        rows: slice = _ALL,
        columns: slice = _ALL,
        turned: Callable[[Array], Array] | None = None,
    ) -> Array:
        """Copy the pixels of some rows and columns, as uint8[h,w,C].

        Args:
            data: the encoded image.
            rows: those that are needed.
            columns: those that are needed.
            turned: copies uint8[h,w,3] with its channels the other way round; None does so with NumPy.
        """
        width = self.width * self.channels
        stride = _stride(width)
        lines = np.frombuffer(data, np.uint8, self.height * stride, self.start).reshape(self.height, stride)
        lines = lines if self.downwards else lines[::-1]
        image = lines[:, :width].reshape(self.height, self.width, self.channels)[rows, columns]
        return (_turned if turned is None or self.channels == 1 else turned)(image)


def plain_bmp(data: Encoded) -> PlainBmp | None:
    """Read the header of a plain BMP; None if it is none, or not complete."""
    if len(data) < _header.size:
        return None
    magic, _, _, _, start, info, width, height, planes, bits, packed, _, _, _, colours, _ = _header.unpack_from(data)
    if magic != b"BM" or info != _INFO or planes != 1 or packed or bits not in (8, 24):
        return None
    downwards, height = height < 0, abs(height)
    if not (0 < width <= _MOST_SIDE and 0 < height <= _MOST_SIDE and width * height <= _MOST_PIXELS):
        return None
    gray, end = bits == 8, _header.size
    if gray:
        end += len(_GRAYS)
        if colours not in (0, 256) or data[_header.size : end] != _GRAYS:
            return None
    channels = 1 if gray else 3
    if start != end or len(data) < start + height * _stride(width * channels):
        return None
    return PlainBmp(height, width, channels, start, downwards)


def is_ordinary(data: Encoded, gray: bool) -> bool:
    """Whether all decoders give the same pixels: a plain BMP stored upwards, whose header says no more than it has to.

    Args:
        data: the encoded image.
        gray: whether it is decoded to gray, which decoders round differently if it has colours.
    """
    plain = plain_bmp(data)
    if plain is None or plain.downwards or (gray and plain.channels == 3):
        return False
    _, size, *reserved, _, _, _, _, _, _, _, pixels, _, _, colours, important = _header.unpack_from(data)
    whole = plain.height * _stride(plain.width * plain.channels)
    counts = (0, 256) if plain.channels == 1 else (0,)
    return (
        size == len(data) == plain.start + whole
        and not any(reserved)
        and pixels in (0, whole)
        and colours in counts
        and important in counts
    )


_STRIP = 1 << 24
"""Bytes of the rows that are turned at a time."""


def as_bmp(image: Array) -> bytes:
    """Write uint8[H,W,1 or 3] as a plain BMP, stored upwards."""
    height, width, channels = image.shape
    stride, palette = _stride(width * channels), _GRAYS if channels == 1 else b""
    rows = np.zeros((height, stride), np.uint8)
    upwards, strip = image[::-1], max(1, _STRIP // max(stride, 1))
    for top in range(0, height, strip):  # so that no copy on the way is as large as the image
        part = upwards[top : top + strip]
        rows[top : top + strip, : width * channels] = _turned(part).reshape(len(part), -1)
    start, colours = _header.size + len(palette), len(palette) // 4
    size, bits = rows.nbytes, 8 * channels
    head = _header.pack(
        b"BM", start + size, 0, 0, start, _INFO, width, height, 1, bits, 0, size, 0, 0, colours, colours
    )
    return b"".join((head, palette, rows.data))


def _turned(image: Array) -> Array:
    """Copy an image, with its colours the other way round: from blue, green, red to red, green, blue and back."""
    copy = np.array(image, order="C")
    if image.shape[2] == 3:
        flat = copy.reshape(-1)  # twice as fast as with three axes
        first = flat[0::3].copy()
        flat[0::3] = flat[2::3]
        flat[2::3] = first
    return copy


def _stride(width: int) -> int:
    """Bytes of a row of `width` bytes: a multiple of 4."""
    return -(-width // 4) * 4
