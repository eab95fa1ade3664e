"""jpeg: the structure of a JPEG, read without decoding it: size, segments, scans, orientation.

Every length is bounded before it is used.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from itertools import islice

from gpupipe.errors import DecodeError
from gpupipe.extract.images.exif import NORMAL, orientation_of, segment_of
from gpupipe.extract.images.jpeg_tables import describes_its_scan

__all__ = [
    "FRAMES",
    "MOST_SCANNED",
    "SEQUENTIAL",
    "check_end",
    "check_scans",
    "exif_blocks",
    "first_marker_in_scan",
    "has_adobe_marker",
    "has_common_header",
    "has_whole_header",
    "is_ordinary",
    "is_progressive",
    "is_unfinished",
    "jpeg_orientation",
    "jpeg_segments",
    "jpeg_size",
    "of_upper_rows",
    "with_plain_orientation",
]

Encoded = bytes | bytearray | memoryview

Segments = Sequence[tuple[int, int, int]]
"""What `jpeg_segments` lists; functions that take it, too, are quicker for a caller that has it."""

_segment = struct.Struct(">BBH").unpack_from


_frame = struct.Struct(">BHHB").unpack_from


_SCAN, _END, _EXIF, _ADOBE, _RESTARTS = 0xDA, 0xD9, 0xE1, 0xEE, 0xDD
_XMP = b"http://ns.adobe.com/xap/1.0/\0"


_NO_SIZE = frozenset((0x01, *range(0xD0, 0xD8)))  # TEM and RST: markers without a length


_TOO_EARLY = frozenset((0xD8, _END, _SCAN))  # a second start, the end, a scan


FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""The markers of frame headers, which say the size."""


_PROGRESSIVE = frozenset((0xC2, 0xC6, 0xCA, 0xCE))


SEQUENTIAL = frozenset((0xC0, 0xC1))
"""The markers of frames with Huffman codes that are not progressive: baseline and extended."""


_ORDINARY = SEQUENTIAL | {0xC2}  # ... and progressive


_SKIPPED = _NO_SIZE | {0x00, 0xFF}


_SEGMENT = re.compile(rb"\xff[^\x00\x01\xd0-\xd7\xff]", re.DOTALL)


# Matches neither an FF byte of the scan nor a restart. Fill bytes are left out: `\xff+` would search a long run of them
# again from each of its bytes.
_MARKER_IN_SCAN = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]", re.DOTALL)


_COEFFICIENTS = (1 << 64) - 1


_MOST_STEPS = 100_000  # segments; a file of nothing else must not occupy a thread


# libjpeg goes over the whole image for every scan, and a scan takes only ten bytes. Encoders make about ten scans, with
# four colours 18, so 20 are always allowed; beyond that, all scans together may cover this many pixels, which is ten
# seconds of work.
_FEW_SCANS, _MOST_PASSED = 20, 1 << 32


_LARGEST_SIDE = 65_500
"""Pixels; libjpeg decodes no larger image."""

MOST_SCANNED = 10 * _MOST_PASSED
"""A JPEG cannot have too many scans up to this product of its bytes and pixels."""


def jpeg_size(data: Encoded) -> tuple[int, int, int, int, int]:
    """Read a JPEG up to its frame header: (height, width, channels, marker of the frame, bits).

    Raises:
        DecodeError: the frame header is missing, truncated, or of an image without pixels.
    """
    at, marker, _ = _frame_header(data)
    bits, height, width, channels = _frame(data, at)
    return height, width, channels, marker, bits


def _frame_header(data: Encoded) -> tuple[int, int, bool]:
    """Where the frame header of a JPEG begins, behind its marker and length, its marker, and whether all is in order.

    Bytes between segments that are not a marker are not; they are skipped, as in libjpeg.

    Raises:
        DecodeError: it is missing, truncated, or that of an image without pixels.
    """
    at, in_order = 2, True
    try:
        for _ in range(_MOST_STEPS):
            prefix, marker, length = _segment(data, at)
            if prefix != 0xFF or not marker:
                found = _SEGMENT.search(data, at)
                if found is None:
                    raise DecodeError(f"damaged JPEG: a marker is expected at byte {at}, found {prefix:02x}")
                at, in_order = found.start(), False
                continue
            if marker in FRAMES:
                _, height, width, channels = _frame(data, at + 4)
                if length < 8 + 3 * channels or not (height and width and channels):
                    said = f"{width}x{height} with {channels} channels"
                    raise DecodeError(f"damaged JPEG: its header says {said}")
                return at + 4, marker, in_order
            if marker == 0xFF:
                at += 1
            elif marker in _NO_SIZE:
                at += 2
            elif marker in _TOO_EARLY or length < 2:
                raise DecodeError(f"damaged JPEG: marker ff {marker:02x} at byte {at} before the size is known")
            else:
                at += 2 + length
    except struct.error:
        raise DecodeError(f"the image is truncated inside its header: {len(data)} bytes of a JPEG") from None
    raise DecodeError(f"damaged JPEG: no size within its first {_MOST_STEPS} markers")


def is_progressive(frame: int) -> bool:
    """Whether the marker of a frame is that of a progressive one."""
    return frame in _PROGRESSIVE


def is_ordinary(data: Encoded) -> bool:
    """Whether all decoders give the same pixels for a JPEG whose header was checked, wherever they crop it.

    They do if it has Huffman codes, one channel, or three of which both colours are sampled alike, and, if it is
    progressive, all of its scans.
    """
    _, _, channels, frame, _ = jpeg_size(data)
    whole = frame in _ORDINARY and channels in (1, 3) and not (frame == 0xC2 and is_unfinished(data, channels))
    return whole and has_common_header(data)


def has_common_header(data: Encoded) -> bool:
    """Whether a JPEG of up to three channels has as many samples of one colour as of the other, and no stray bytes."""
    at, _, in_order = _frame_header(data)
    return in_order and (data[at + 5] < 3 or (len(data) > at + 13 and data[at + 10] == data[at + 13]))


def has_whole_header(data: Encoded, segments: Segments | None = None) -> bool:
    """Whether decoders that differ on damaged headers agree on that of a JPEG, see `describes_its_scan`."""
    return describes_its_scan(data, segments or jpeg_segments(data))


def jpeg_segments(data: Encoded) -> list[tuple[int, int, int]]:
    """List (marker, start, end) of the segments up to the first scan; the last one may be truncated.

    Bytes between segments that are not a marker are skipped, as in libjpeg.
    """
    out: list[tuple[int, int, int]] = []
    add, at = out.append, 2
    try:
        for _ in range(_MOST_STEPS):
            prefix, marker, length = _segment(data, at)
            if prefix != 0xFF or marker in _SKIPPED:
                found = _SEGMENT.search(data, at)
                if found is None:
                    break
                at = found.start()
            elif length < 2 or marker == _END:
                break
            else:
                start = at + 4
                at += 2 + length
                add((marker, start, at))
                if marker == _SCAN:
                    break
    except struct.error:  # truncated: the rest holds no further segment
        return out
    return out


def _scans(data: Encoded) -> Iterator[tuple[int, int]]:
    """Iterate over (start, end) of the header of each scan, without its marker and length."""
    segments = jpeg_segments(data)
    if not segments or segments[-1][0] != _SCAN:
        return
    _, start, at = segments[-1]
    yield start, at
    whole = bytes(data)
    while (found := _MARKER_IN_SCAN.search(whole, at)) is not None:
        at = found.end()
        marker = whole[at - 1]
        if marker == _END:
            return
        if marker in _NO_SIZE:
            continue
        start, at = at + 2, at + int.from_bytes(whole[at : at + 2], "big")
        if marker == _SCAN:
            yield start, at


def check_end(data: Encoded) -> None:
    """Check that a JPEG has its end marker. Bytes after it are allowed.

    The marker cannot occur inside compressed data, and one before the first scan belongs to a thumbnail. The bytes
    after it may be megabytes (a film, a second image), so the search goes forward, at the speed of memory, and only if
    the last two bytes are not the marker.

    Raises:
        DecodeError: the marker is missing.
    """
    n = len(data)
    if n > 3 and data[n - 2] == 0xFF and data[n - 1] == _END:
        return
    scan = next(_scans(data), None)
    if scan is None or bytes(data[scan[1] :]).find(b"\xff\xd9") < 0:
        raise DecodeError(f"truncated JPEG: {n} bytes without the end marker ff d9")


def check_scans(data: Encoded, pixels: int, channels: int, progressive: bool) -> None:
    """Check that a JPEG does not have so many scans that decoding it takes too long.

    Args:
        data: the encoded image.
        pixels: height times width.
        channels: of the image; a baseline JPEG whose first scan has all channels has one scan.
        progressive: whether it is progressive.

    Raises:
        DecodeError: it has more than 20 scans, and together they cover more than 2**32 pixels.
    """
    segments = jpeg_segments(data)
    if len(segments) == _MOST_STEPS:
        raise DecodeError(f"damaged JPEG: no scan within its first {_MOST_STEPS} segments")
    if not progressive and segments and data[segments[-1][1] : segments[-1][1] + 1] == bytes((channels,)):
        return
    most = max(_MOST_PASSED // pixels, _FEW_SCANS)
    # Thumbnails and tables may hold these two bytes, too, so the count is an upper bound of the scans.
    if bytes(data).count(b"\xff\xda") > most and len(list(islice(_scans(data), most + 1))) > most:
        raise DecodeError(f"a JPEG of {pixels} pixels may have {most} scans, this one has more")


def is_unfinished(data: Encoded, channels: int) -> bool:
    """Whether a progressive JPEG ends before all of its coefficients are complete to the last bit.

    libjpeg smooths the borders between the blocks of such an image. It uses their neighbours, which differ if only a
    part of the image is decoded; other decoders do not smooth.

    Args:
        data: the encoded image, whose header was checked.
        channels: of the image.
    """
    known: dict[int, int] = {}  # component id -> a bit for each coefficient that is complete to the last bit
    for start, end in islice(_scans(data), _MOST_STEPS):
        header = bytes(data[start:end])
        count = header[0] if header else 0
        if not count or len(header) < 4 + 2 * count:
            return True
        first, last, bits = header[1 + 2 * count : 4 + 2 * count]
        band = (2 << min(last, 63)) - 1 >> first << first
        for name in header[1 : 1 + 2 * count : 2]:
            had = known.get(name, 0)
            known[name] = had & ~band if bits & 15 else had | band
    return len(known) != channels or any(there != _COEFFICIENTS for there in known.values())


def first_marker_in_scan(data: Encoded, channels: int) -> int | None:
    """Find the offset of the first marker that ends the only scan of a JPEG and is not the end of the image.

    None if there is none, or if the JPEG does not have one scan of all channels.
    """
    start, at = next(_scans(data), (0, 0))
    if at <= start or at > len(data) or data[start] != channels:
        return None
    scan = bytes(data[at:])
    found = _MARKER_IN_SCAN.search(scan)
    if found is None or scan[found.end() - 1] == _END:
        return None
    return at + len(scan[: found.start()].rstrip(b"\xff"))


def of_upper_rows(data: Encoded, rows: int) -> tuple[bytearray, int] | None:
    """Rewrite the header of a JPEG to say that it ends below some of its rows, so that a decoder stops there.

    Its scan stays whole: a decoder finds the rest of it left over. The last rows may differ from those of the image,
    as colours are interpolated with rows that are no longer there; those are rows beyond the ones asked for.

    Args:
        data: the encoded image, whose header was checked.
        rows: the rows that are needed, at least 1.

    Returns:
        The JPEG and its new height; None if it would be no shorter, or if its blocks do not lie row by row in one scan
        without restarts: then a decoder stops elsewhere, or takes damage for the end.
    """
    segments = jpeg_segments(data)
    if not segments or segments[-1][0] != _SCAN or segments[-1][2] > len(data):
        return None
    frames = [(marker, start, end) for marker, start, end in segments if marker in FRAMES]
    if len(frames) != 1 or frames[0][0] not in (0xC0, 0xC1) or any(marker == _RESTARTS for marker, _, _ in segments):
        return None
    _, start, end = frames[0]
    _, height, _, channels = _frame(data, start)
    if end - start != 6 + 3 * channels or data[segments[-1][1]] != channels:
        return None
    block = 8 * max(data[start + 7 + 3 * n] & 15 for n in range(channels))
    if not block or height > _LARGEST_SIDE:  # libjpeg refuses the image
        return None
    shorter = (-(-rows // block) + 1) * block
    if shorter >= height:
        return None
    out = bytearray(data)
    out[start + 1 : start + 3] = shorter.to_bytes(2, "big")
    return out, shorter


def has_adobe_marker(data: Encoded) -> bool:
    """Whether a JPEG has Adobe's segment, by libjpeg's test: then its CMYK is stored inverted."""
    return any(
        marker == _ADOBE and end - start >= 12 and bytes(data[start : start + 5]) == b"Adobe"
        for marker, start, end in jpeg_segments(data)
    )


def exif_blocks(data: Encoded, segments: Segments | None = None) -> list[tuple[int, int]]:
    """List (start, end) of the EXIF blocks of a JPEG, without their prefix."""
    return [
        (start + 6, end)
        for marker, start, end in segments or jpeg_segments(data)
        if marker == _EXIF and bytes(data[start : start + 6]) == b"Exif\0\0"
    ]


def jpeg_orientation(data: Encoded, segments: Segments | None = None) -> int:
    """The orientation of a JPEG, as Pillow finds it: in its EXIF blocks, one after the other, else in its XMP."""
    segments = segments or jpeg_segments(data)
    exif = b"".join(bytes(data[start:end]) for start, end in exif_blocks(data, segments))
    marked = [(start, end) for marker, start, end in segments if marker == _EXIF]
    packets = (bytes(data[start:end]) for start, end in marked if bytes(data[start : start + len(_XMP)]) == _XMP)
    return orientation_of(exif, next(packets, b""))


def with_plain_orientation(data: Encoded, segments: Segments | None = None) -> bytes | None:
    """Replace a JPEG's EXIF by its orientation alone; None if it has no EXIF and no orientation, or nothing else in it.

    A damaged block is ignored. Other readers do not look at XMP, and some crash on a damaged block. The old blocks stay
    where they are, without the prefix that identifies them.
    """
    blocks, orientation = exif_blocks(data, segments), jpeg_orientation(data, segments)
    if not blocks and orientation == NORMAL:
        return None
    plain = segment_of(orientation)
    if len(blocks) == 1 and bytes(data[2 : 2 + len(plain)]) == plain:
        return None
    out = bytearray(data)
    for start, _ in blocks:
        out[start - 6 : start] = bytes(6)
    out[2:2] = plain
    return bytes(out)
