"""headers: size, channels and orientation of an image, from its first bytes.

Every format has a small function that reads what it must and bounds every length. What goes wrong here never reaches a
decoder, which would blame a whole batch for it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gpupipe.errors import DecodeError
from gpupipe.extract.images.containers import CHECKS, FEW_SCANS, MOST_PASSED, MOST_SCANNED
from gpupipe.extract.images.exif import NORMAL, orientation_of, segment_of

__all__ = [
    "MARKER_IN_SCAN",
    "ImageHeader",
    "check_complete",
    "check_decodable",
    "check_scans",
    "has_adobe_marker",
    "jpeg_segments",
    "jpeg_size",
    "read_header",
    "with_plain_orientation",
    "without_header_warnings",
]

_segment = struct.Struct(">BBH").unpack_from


_frame = struct.Struct(">BHHB").unpack_from


_chunk = struct.Struct(">I4s").unpack_from


_NO_SIZE = frozenset((0x01, *range(0xD0, 0xD8)))  # TEM and RST: markers without a length


_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


_PROGRESSIVE = frozenset((0xC2, 0xC6, 0xCA, 0xCE))


_PNG_BITS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}  # by colour type


# Neither a byte FF of the scan nor a restart. Fill bytes are not part of it: `\xff+` would look through a long run of
# them again from each of its bytes.
MARKER_IN_SCAN = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]", re.DOTALL)


_NOTHING = re.compile(rb"(?:\xff+[\x01\xd0-\xd7])*\xff*", re.DOTALL)  # fill bytes and markers without a segment


_ANY_MARKER = re.compile(rb"\xff[^\x00\xff]", re.DOTALL)


_MOST_STEPS = 100_000  # segments; a file of nothing else must not keep a thread busy


_MOST_SIDE = 1_000_000
"""Pixels of a side: libpng's limit. Pillow keeps a pointer for each row, whatever its width."""


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """What an image says of itself.

    Attributes:
        format: "jpeg", "png", "gif", "webp", "bmp" or "tiff".
        height: in pixels, as stored: not turned by the orientation.
        width: in pixels, as stored.
        channels: of the stored image; a palette counts as 3, but for a gray one of a BMP.
        orientation: EXIF's 1..8; 1 also if there is none or it was not asked for.
        progressive: whether a JPEG is progressive, or a PNG interlaced.
        bits: of one channel.
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


# Images of a data set share few sizes, and making a frozen object costs as much as scanning a header.
_interned = lru_cache(maxsize=4096)(ImageHeader)


def read_header(data: bytes | bytearray | memoryview, *, orientation: bool = False) -> ImageHeader:
    """Read the header of an image of any known format.

    Args:
        data: the encoded image, or as much of its begin as holds the header.
        orientation: also look for EXIF's orientation (JPEG, PNG, WebP, TIFF).

    Raises:
        DecodeError: no image of a known format, an empty one, or one cut inside the header.
    """
    if len(data) > 1 and data[0] == 0xFF and data[1] == 0xD8:
        height, width, channels, progressive, bits = jpeg_size(data)
        turned = _jpeg_orientation(data) if orientation else NORMAL
        return _interned("jpeg", height, width, channels, turned, progressive, bits)
    head = bytes(data[:16])
    for magic, read in _FORMATS:
        if head.startswith(magic):
            try:
                header = read(data, orientation)
            except (struct.error, IndexError) as error:
                raise _cut(data) from error
            if header.height <= 0 or header.width <= 0:
                raise DecodeError(f"an image has pixels, this {header.format} is {header.width}x{header.height}")
            return header
    if not head:
        raise DecodeError("an image is needed, got no bytes")
    raise DecodeError(f"not an image: starts with {head[:8].hex(' ')} ({len(data)} bytes)")


def jpeg_size(data: bytes | bytearray | memoryview) -> tuple[int, int, int, bool, int]:
    """Scan a JPEG to its frame header: (height, width, channels, progressive, bits).

    Raises:
        DecodeError: the frame header is missing, cut, or of an image without pixels.
    """
    at = 2
    try:
        for _ in range(_MOST_STEPS):
            prefix, marker, length = _segment(data, at)
            if prefix != 0xFF:
                raise DecodeError(f"damaged JPEG: a marker is expected at byte {at}, found {prefix:02x}")
            if marker in _FRAMES:
                bits, height, width, channels = _frame(data, at + 4)
                if length < 8 + 3 * channels or not (height and width and channels):
                    found = f"{width}x{height} with {channels} channels"
                    raise DecodeError(f"damaged JPEG: its header says {found}")
                return height, width, channels, marker in _PROGRESSIVE, bits
            if marker == 0xFF or marker in _NO_SIZE:
                at = _behind_nothing(data, at)
            elif marker == 0xDA or marker == 0xD9 or marker == 0 or marker == 0xD8 or length < 2:
                found = f"marker ff {marker:02x} at byte {at} before the size is known"
                raise DecodeError(f"damaged JPEG: {found}")
            else:
                at += 2 + length
    except struct.error as error:
        raise _cut(data) from error
    raise DecodeError(f"damaged JPEG: no size within its first {_MOST_STEPS} markers")


def check_complete(data: bytes | bytearray | memoryview, header: ImageHeader) -> None:
    """Check that an image is not cut: a JPEG has its end marker, and the parts of other formats fit together.

    Bytes behind the end are allowed. What is left to decoders is what only decoding shows.

    Raises:
        DecodeError: the end is missing, decoders would disagree about the structure, or it is made to keep them busy.
    """
    n = len(data)
    if header.format == "jpeg":
        if not (n > 3 and data[n - 2] == 0xFF and data[n - 1] == 0xD9) and not _has_end(data):
            raise DecodeError(f"truncated JPEG: {n} bytes without the end marker ff d9")
        pixels = header.height * header.width
        if n * pixels > MOST_SCANNED:
            check_scans(data, pixels, header.channels, header.progressive)
    elif header.format in CHECKS:
        if max(header.height, header.width) > _MOST_SIDE:
            raise DecodeError(
                f"an image may have {_MOST_SIDE} pixels a side, this {header.format} is {header.width}x{header.height}",
            )
        try:
            CHECKS[header.format](data)
        except (struct.error, IndexError) as error:
            raise _cut(data) from error


def check_scans(data: bytes | bytearray | memoryview, pixels: int, channels: int, progressive: bool) -> None:
    """Check that a JPEG does not have so many scans that decoding it takes for ever.

    Args:
        data: the encoded image.
        pixels: height times width.
        channels: of the image; a baseline JPEG whose first scan has all of them has one scan.
        progressive: whether it is progressive.

    Raises:
        DecodeError: it has more than 64 scans, and they go over more than 2**32 pixels together.
    """
    segments = jpeg_segments(data)
    if len(segments) == _MOST_STEPS:
        raise DecodeError(f"damaged JPEG: no scan within its first {_MOST_STEPS} segments")
    if not segments or segments[-1][0] != 0xDA:
        return
    _, start, at = segments[-1]
    if start >= len(data) or (data[start] == channels and not progressive):
        return
    # No scan holds these two bytes, but thumbnails and tables may: there can be no more scans than this.
    pairs = (np.frombuffer(data, "<u2", (len(data) - odd) // 2, odd) == 0xDAFF for odd in (0, 1))
    most = max(MOST_PASSED // pixels, FEW_SCANS)
    if sum(map(np.count_nonzero, pairs)) <= most:
        return
    whole, scans = bytes(data), 1
    while scans <= most:
        found = MARKER_IN_SCAN.search(whole, at)
        if found is None or whole[found.end() - 1] == 0xD9:
            return
        at = found.end()
        marker = whole[at - 1]
        scans += marker == 0xDA
        if marker not in _NO_SIZE:
            at += int.from_bytes(whole[at : at + 2], "big")
    raise DecodeError(f"a JPEG of {pixels} pixels may have {most} scans, this one has more")


def check_decodable(kind: str, bits: int) -> None:
    """Check that every executor has a decoder for an image. The NumPy one and DALI must not disagree on what is bad.

    Args:
        kind: the `ImageHeader.format`.
        bits: of one channel.

    Raises:
        DecodeError: a GIF, or a JPEG of other than 8 bits.
    """
    if kind == "gif":
        raise DecodeError("a still image is needed, got a GIF; convert it to PNG, JPEG or WebP")
    if kind == "jpeg" and bits != 8:
        raise DecodeError(f"a JPEG of 8 bits is needed, its header says {bits}")


def _cut(data: bytes | bytearray | memoryview) -> DecodeError:
    head = bytes(data[:8]).hex(" ")
    return DecodeError(f"the image is cut inside its header: {len(data)} bytes, they start with {head}")


def jpeg_segments(data: bytes | bytearray | memoryview) -> list[tuple[int, int, int]]:
    """List (marker, start, end) of the segments up to the first scan, as far as they are whole.

    Bytes between them that are no marker are passed over, as libjpeg does.
    """
    out: list[tuple[int, int, int]] = []
    at = 2
    try:
        for _ in range(_MOST_STEPS):
            prefix, marker, length = _segment(data, at)
            if prefix != 0xFF or marker == 0:
                found = _ANY_MARKER.search(data, at)
                if found is None:
                    break
                at = found.start()
                continue
            if marker == 0xFF or marker in _NO_SIZE:
                at = _behind_nothing(data, at)
                continue
            if length < 2 or marker == 0xD9:
                break
            out.append((marker, at + 4, at + 2 + length))
            if marker == 0xDA:
                break
            at += 2 + length
    except struct.error:  # cut: whatever is left holds no further segment
        return out
    return out


def _behind_nothing(data: bytes | bytearray | memoryview, at: int) -> int:
    """Where the next segment begins: any number of fill bytes and of markers without a segment may precede it."""
    found = _NOTHING.match(data, at)
    end = at if found is None else found.end()
    return end - 1 if data[end - 1] == 0xFF else end


def _has_end(data: bytes | bytearray | memoryview) -> bool:
    """Look for the end marker behind the begin of the first scan.

    It cannot occur inside compressed data, and one before the scan belongs to a thumbnail. Bytes behind the end may be
    megabytes (a film, a second image), so the search goes forward, at the speed of memory, and only where the last two
    bytes are no end marker.
    """
    segments = jpeg_segments(data)
    if not segments or segments[-1][0] != 0xDA:
        return False
    return bytes(data[segments[-1][2] :]).find(b"\xff\xd9") >= 0


def has_adobe_marker(data: bytes | bytearray | memoryview) -> bool:
    """Whether a JPEG has Adobe's segment, as libjpeg looks for it: then its CMYK is stored inverted."""
    return any(
        marker == 0xEE and end - start >= 12 and bytes(data[start : start + 5]) == b"Adobe"
        for marker, start, end in jpeg_segments(data)
    )


def without_header_warnings(data: bytes | bytearray | memoryview) -> bytes | None:
    """A JPEG without what libjpeg only warns of in its header; None if there is nothing of the kind.

    Bytes between two segments are passed over. A revision of JFIF that it does not know means nothing. For a transform
    of Adobe's that it does not know it takes the usual one: YCbCr of three channels, YCCK of four; any other number of
    channels has none.
    """
    changed = _without_gaps(data)
    data = data if changed is None else changed
    for marker, start, end in jpeg_segments(data):
        place = value = -1
        if end > len(data):
            break
        if marker == 0xE0 and end - start >= 14 and bytes(data[start : start + 5]) == b"JFIF\0":
            place, value = start + 5, 1
            if data[place] == 1:
                continue
        elif marker == 0xEE and end - start >= 12 and bytes(data[start : start + 5]) == b"Adobe":
            place, value = start + 11, {3: 1, 4: 2}.get(jpeg_size(data)[2], 0)
            if data[place] in (0, value):
                continue
        if place >= 0:
            changed = bytearray(data) if changed is None else changed
            changed[place] = value
    return None if changed is None else bytes(changed)


def _without_gaps(data: bytes | bytearray | memoryview) -> bytearray | None:
    """A JPEG whose segments, those up to the first scan, follow one another; None if they do."""
    segments = jpeg_segments(data)
    starts = [start - 4 for _, start, _ in segments]
    ends = [2, *(end for _, _, end in segments)]
    # Fill bytes and markers without a segment are nothing to warn of, and may go where something else does.
    gaps = [bytes(data[end:start]) for end, start in zip(ends, starts, strict=False)]
    if not any(_NOTHING.fullmatch(gap) is None for gap in gaps):
        return None
    out = bytearray(data[:2])
    for _, start, end in segments:
        out += data[start - 4 : end]
    return out + data[ends[-1] :]


def _jpeg_orientation(data: bytes | bytearray | memoryview) -> int:
    for start, end in _exif_blocks(data):
        return orientation_of(bytes(data[start:end]))
    return NORMAL


def _exif_blocks(data: bytes | bytearray | memoryview) -> list[tuple[int, int]]:
    """(start, end) of the EXIF blocks of a JPEG, behind their prefix."""
    return [
        (start + 6, end)
        for marker, start, end in jpeg_segments(data)
        if marker == 0xE1 and bytes(data[start : start + 6]) == b"Exif\0\0"
    ]


def with_plain_orientation(data: bytes | bytearray | memoryview) -> bytes | None:
    """A JPEG whose EXIF holds its orientation and nothing else; None if it has no EXIF, or is one already.

    The first block counts, and one that is damaged asks for nothing. Other readers look further, and there are some
    that a damaged block brings down. Those that there are stay in their places, and lose their name.
    """
    blocks = _exif_blocks(data)
    if not blocks:
        return None
    plain = segment_of(orientation_of(bytes(data[slice(*blocks[0])])))
    if len(blocks) == 1 and bytes(data[2 : 2 + len(plain)]) == plain:
        return None
    out = bytearray(data)
    for start, _ in blocks:
        out[start - 6 : start] = bytes(6)
    out[2:2] = plain
    return bytes(out)


def _png_chunks(data: bytes | bytearray | memoryview) -> list[tuple[bytes, int, int]]:
    """List (type, start, end) of the whole chunks."""
    out: list[tuple[bytes, int, int]] = []
    at, n = 8, len(data)
    while at + 12 <= n and len(out) < _MOST_STEPS:
        length, kind = _chunk(data, at)
        if length > n - at - 12:
            break
        out.append((kind, at + 8, at + 8 + length))
        at += 12 + length
    return out


def _png(data: bytes | bytearray | memoryview, orientation: bool) -> ImageHeader:
    length, kind, width, height, bits, colour, compression, prediction, interlace = struct.unpack_from(
        ">I4sIIBBBBB", data, 8
    )
    channels = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}.get(colour)
    odd = bits not in _PNG_BITS.get(colour, ()) or compression or prediction or interlace > 1
    if kind != b"IHDR" or length != 13 or channels is None or odd or width >> 31 or height >> 31:
        raise DecodeError("damaged PNG: it does not begin with a valid IHDR")
    turned = NORMAL
    if orientation:
        exif = [bytes(data[start:end]) for name, start, end in _png_chunks(data) if name == b"eXIf"]
        turned = orientation_of(exif[0]) if exif else NORMAL
    return _interned("png", height, width, channels, turned, bool(interlace), 8 if colour == 3 else bits)


def _gif(data: bytes | bytearray | memoryview, orientation: bool) -> ImageHeader:
    width, height = struct.unpack_from("<HH", data, 6)
    return _interned("gif", height, width, 3, NORMAL, False, 8)


def _bmp(data: bytes | bytearray | memoryview, orientation: bool) -> ImageHeader:
    (size,) = struct.unpack_from("<I", data, 14)
    if size == 12:
        width, height, _, bits = struct.unpack_from("<HHHH", data, 18)
        colours = 0
    elif size >= 40:
        width, height, _, bits = struct.unpack_from("<iiHH", data, 18)
        height = abs(height)  # negative: the first row is the top one
        (colours,) = struct.unpack_from("<I", data, 46)
    else:
        raise DecodeError(f"damaged BMP: its header says that it is {size} bytes long")
    channels = 4 if bits == 32 else 3
    if bits <= 8:
        entry, most = 3 if size == 12 else 4, 1 << bits
        palette = _exactly(data, 14 + size, entry * min(colours or most, most))
        channels = 1 if palette[0::entry] == palette[1::entry] == palette[2::entry] else 3
    return _interned("bmp", height, width, channels, NORMAL, False, 8)


def _webp(data: bytes | bytearray | memoryview, orientation: bool) -> ImageHeader:
    kind = bytes(data[8:16])
    turned = NORMAL
    if kind == b"WEBPVP8 ":
        start, width, height = struct.unpack_from("<3sHH", data, 23)
        if start != b"\x9d\x01\x2a":
            raise DecodeError("damaged WebP: its frame does not begin with 9d 01 2a")
        return _interned("webp", height & 0x3FFF, width & 0x3FFF, 3, turned, False, 8)
    if kind == b"WEBPVP8L":
        signature, packed = struct.unpack_from("<BI", data, 20)
        if signature != 0x2F:
            raise DecodeError("damaged WebP: its lossless frame does not begin with 2f")
        width, height = (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1
        return _interned("webp", height, width, 4 if packed >> 28 & 1 else 3, turned, False, 8)
    if kind == b"WEBPVP8X":
        flags = data[20]
        width = int.from_bytes(_exactly(data, 24, 3), "little") + 1
        height = int.from_bytes(_exactly(data, 27, 3), "little") + 1
        if orientation and flags & 8:
            turned = _webp_orientation(data)
        return _interned("webp", height, width, 4 if flags & 16 else 3, turned, False, 8)
    if len(data) < 16:
        raise _cut(data)
    raise DecodeError(f"not an image: a RIFF file of {kind[:4]!r}, not WebP")


def _webp_orientation(data: bytes | bytearray | memoryview) -> int:
    at = 12
    for _ in range(_MOST_STEPS):
        if at + 8 > len(data):
            break
        kind, length = struct.unpack_from("<4sI", data, at)
        if kind == b"EXIF":
            exif = bytes(data[at + 8 : at + 8 + min(length, 1 << 16)])
            return orientation_of(exif.removeprefix(b"Exif\0\0"))
        at += 8 + length + (length & 1)
    return NORMAL


def _exactly(data: bytes | bytearray | memoryview, at: int, n: int) -> bytes:
    piece = bytes(data[at : at + n])
    if len(piece) < n:
        raise IndexError(at)
    return piece


def _tiff(data: bytes | bytearray | memoryview, orientation: bool) -> ImageHeader:
    order = "<" if data[0] == 0x49 else ">"
    (at,) = struct.unpack_from(f"{order}I", data, 4)
    (count,) = struct.unpack_from(f"{order}H", data, at)
    tags: dict[int, int] = {}
    for k in range(count):  # at most 65,535
        tag, kind, n = struct.unpack_from(f"{order}HHI", data, at + 2 + 12 * k)
        if tag in (256, 257, 258, 262, 274, 277) and kind in (3, 4):
            form = "H" if kind == 3 else "I"
            place = at + 10 + 12 * k
            if n * (2 if kind == 3 else 4) > 4:  # several values lie elsewhere; the first one speaks for all
                (place,) = struct.unpack_from(f"{order}I", data, place)
            (tags[tag],) = struct.unpack_from(f"{order}{form}", data, place)
    if 256 not in tags or 257 not in tags:
        raise DecodeError("damaged TIFF: it does not say its size")
    if not tags.get(277, 1) or not tags.get(258, 1):
        raise DecodeError("damaged TIFF: its pixels have no channels, or no bits")
    turned = tags.get(274, NORMAL) if orientation else NORMAL
    turned = turned if 1 <= turned <= 8 else NORMAL
    channels = 3 if tags.get(262) == 3 else tags.get(277, 1)  # a palette
    return _interned("tiff", tags[257], tags[256], channels, turned, False, tags.get(258, 1))


_FORMATS: tuple[tuple[bytes, Callable[[bytes | bytearray | memoryview, bool], ImageHeader]], ...] = (
    (b"\x89PNG\r\n\x1a\n", _png),
    (b"GIF87a", _gif),
    (b"GIF89a", _gif),
    (b"RIFF", _webp),
    (b"BM", _bmp),
    (b"II*\0", _tiff),
    (b"MM\0*", _tiff),
)
