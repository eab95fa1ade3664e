"""headers: size, channels and orientation of an image, from its first bytes.

The headers of JPEGs, PNGs and plain BMPs are read here, with every length bounded; those of other formats by Pillow,
which also decodes them. An image that fails here never reaches a decoder, where it would make a whole batch fail.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from gpupipe.brief import brief
from gpupipe.errors import DecodeError
from gpupipe.extract.images.bmp import plain_bmp
from gpupipe.extract.images.exif import NORMAL, orientation_of
from gpupipe.extract.images.jpeg import (
    MOST_SCANNED,
    check_end,
    check_scans,
    is_progressive,
    jpeg_orientation,
    jpeg_size,
)
from gpupipe.extract.images.pillow import facts, opened
from gpupipe.extract.images.png import check_png, exif_and_xmp
from gpupipe.extract.images.tiff import layout_of

from ...classes import dataclass

__all__ = ["ImageHeader", "check_complete", "check_decodable", "check_pixels", "read_header"]

Encoded = bytes | bytearray | memoryview

_PNG = b"\x89PNG\r\n\x1a\n"


_OTHERS = (
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"RIFF", "webp"),
    (b"BM", "bmp"),
    (b"II*\0", "tiff"),
    (b"MM\0*", "tiff"),
)


_LONGEST_PATH = 4096


_UNREADABLE = (
    (4, b"ftypavi", "AVIF"),
    (4, b"ftyphe", "HEIC"),
    (4, b"ftypmif1", "HEIC"),
    (0, b"\0\0\0\x0cjP  \r\n", "JPEG 2000"),
    (0, b"\xff\x4f\xff\x51", "JPEG 2000 codestream"),
    (0, b"\0\0\0\x0cJXL \r\n", "JPEG XL"),
    (0, b"\xff\x0a", "JPEG XL codestream"),
    (0, b"II+\0", "BigTIFF"),
    (0, b"MM\0+", "BigTIFF"),
    *((0, b"P%d" % n + space, "PPM (Netpbm)") for n in range(1, 7) for space in (b"\n", b" ", b"\r", b"\t")),
    (0, b"%PDF-", "PDF"),
    (0, b"<svg", "SVG"),
)
"""Offset, first bytes and name of formats that no decoder here reads."""


_PNG_BITS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}  # by colour type


_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}


_MOST_SIDE = 1_000_000
"""Pixels of a side: libpng's limit. Pillow keeps a pointer for each row, whatever its width."""


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """The properties of an image that its header states.

    Attributes:
        format: "jpeg", "png", "gif", "webp", "bmp" or "tiff".
        height: in pixels, as stored: the orientation is not applied.
        width: in pixels, as stored.
        channels: of the stored image; a palette counts as 3, but the gray palette of a BMP as 1.
        orientation: EXIF's 1..8; 1 also if there is none or it was not requested.
        progressive: whether a JPEG is progressive, or a PNG interlaced.
        bits: bits of one channel.
    """

    format: str
    height: int
    width: int
    channels: int
    orientation: int = NORMAL
    progressive: bool = False
    bits: int = 8

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of the upright image: swapped for the orientations 5..8."""
        return (self.width, self.height) if self.orientation > 4 else (self.height, self.width)


# Images of a data set share few sizes, and creating a frozen object costs as much as reading a header.
_interned = lru_cache(maxsize=4096)(ImageHeader)


def read_header(data: Encoded, *, orientation: bool = False) -> ImageHeader:
    """Read the header of an image of any known format.

    Args:
        data: the encoded image; for a JPEG or PNG the part with the header is enough.
        orientation: also look for EXIF's orientation (JPEG, PNG, WebP, TIFF).

    Raises:
        DecodeError: not an image of a known format, an empty one, or one truncated inside its header.
    """
    if len(data) > 1 and data[0] == 0xFF and data[1] == 0xD8:
        height, width, channels, frame, bits = jpeg_size(data)
        turned = jpeg_orientation(data) if orientation else NORMAL
        return _interned("jpeg", height, width, channels, turned, is_progressive(frame), bits)
    head = bytes(data[:8])
    if head == _PNG:
        return _png(data, orientation)
    plain = plain_bmp(data) if head.startswith(b"BM") else None
    if plain is not None:
        return _interned("bmp", plain.height, plain.width, plain.channels)
    for magic, kind in _OTHERS:
        if head.startswith(magic):
            layout = layout_of(data) if kind == "tiff" else None
            if layout is not None and layout.is_beyond_pillow:
                turned, bits = layout.orientation if orientation else NORMAL, layout.bits
                return _interned(kind, layout.height, layout.width, layout.channels, turned, False, bits)
            with opened(data, kind) as image:
                height, width, channels, turned, bits = facts(image)
            return _interned(kind, height, width, channels, turned if orientation else NORMAL, False, bits)
    if not head:
        raise DecodeError("an image is needed, got no bytes")
    start = bytes(data[:16])
    for at, magic, name in _UNREADABLE:
        if start[at:].startswith(magic):
            raise DecodeError(
                f"a JPEG, PNG, BMP, WebP or TIFF is needed, got {name}; convert it, or read it in an ops.py_function"
            )
    if len(data) < _LONGEST_PATH and (text := bytes(data)).isascii() and text.decode().isprintable():
        raise DecodeError(f"not an image but the text {brief(text.decode())}; read a path with gp.io.read_file(path)")
    raise DecodeError(f"not an image: starts with {head.hex(' ')} ({len(data)} bytes)")


def check_complete(data: Encoded, header: ImageHeader) -> None:
    """Check that an image is complete: a JPEG has its end marker, and a PNG all its chunks.

    Bytes after the end are allowed. Damage that only decoding can find is left to the decoders.

    Raises:
        DecodeError: the end is missing, decoders would disagree about the structure, or it is made to exhaust them.
    """
    pixels = header.height * header.width
    if header.format == "jpeg":
        check_end(data)
        if len(data) * pixels > MOST_SCANNED:
            check_scans(data, pixels, header.channels, header.progressive)
    elif max(header.height, header.width) > _MOST_SIDE:
        raise DecodeError(
            f"an image may have {_MOST_SIDE} pixels a side, this {header.format} is {header.width}x{header.height}",
        )
    elif header.format == "png":
        check_png(data)


def check_decodable(kind: str, bits: int) -> None:
    """Check that there is a decoder for an image.

    Args:
        kind: the `ImageHeader.format`.
        bits: bits of one channel.

    Raises:
        DecodeError: a GIF, or a JPEG of other than 8 bits.
    """
    if kind == "gif":
        raise DecodeError("a still image is needed, got a GIF; convert it to PNG, JPEG or WebP")
    if kind == "jpeg" and bits != 8:
        raise DecodeError(f"a JPEG of 8 bits is needed, its header says {bits}")


def check_pixels(height: int, width: int, most: int) -> None:
    """Check that an image has no more than `most` pixels.

    Raises:
        DecodeError: it has more.
    """
    if height * width > most:
        raise DecodeError(
            f"an image may have {most} pixels (Options.max_pixels), got {height}x{width} = {height * width}"
        )


def _png(data: Encoded, orientation: bool) -> ImageHeader:
    if len(data) < 29:
        raise DecodeError(f"the image is truncated inside its header: {len(data)} bytes of a PNG")
    length, kind, width, height, bits, colour, *methods, interlace = struct.unpack_from(">I4sIIBBBBB", data, 8)
    odd = bits not in _PNG_BITS.get(colour, ()) or any(methods) or interlace > 1
    if kind != b"IHDR" or length != 13 or odd or width >> 31 or height >> 31:
        raise DecodeError("damaged PNG: it does not start with a valid IHDR")
    if not (height and width):
        raise DecodeError(f"an image needs pixels, this PNG is {width}x{height}")
    turned = orientation_of(*exif_and_xmp(data)) if orientation else NORMAL
    channels = _PNG_CHANNELS[colour]
    return _interned("png", height, width, channels, turned, bool(interlace), 8 if colour == 3 else bits)
