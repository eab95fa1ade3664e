"""containers: whether the parts of a PNG, BMP, TIFF or WebP fit together, from its structure, without decoding.

Decoders disagree about files whose structure is broken: one stops, another guesses. What one of the executors might
guess is refused here, before any of them sees it. A check reads headers and, of a PNG, sums up its bytes.

What no structure shows needs one judge, the decoder of the host: `without_tail` is what other decoders are given of a
WebP, and `has_all_rows` finds what the host's lets pass.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

from gpupipe.errors import DecodeError

__all__ = [
    "CHECKS",
    "FEW_SCANS",
    "MOST_PASSED",
    "MOST_SCANNED",
    "has_all_rows",
    "read_in_several_ways",
    "without_ancillary",
    "without_orientation",
    "without_tail",
]

Encoded = bytes | bytearray | memoryview


# libjpeg goes over the whole image once for every scan, and a scan takes ten bytes. Encoders make about ten scans: so
# many are always allowed, and otherwise so many pixels in all scans together, which is a second of work.
FEW_SCANS, MOST_PASSED = 64, 1 << 32


MOST_SCANNED = 10 * MOST_PASSED
"""Bytes times pixels up to which a JPEG cannot have too many scans."""


_chunk = struct.Struct(">I4s").unpack_from


_sum = struct.Struct(">I").unpack_from


_CRITICAL = frozenset((b"IHDR", b"PLTE", b"IDAT", b"IEND"))


_PNG_FRAMES = frozenset((b"acTL",))


_PNG_GAMMA = _PNG_FRAMES | {b"gAMA", b"sRGB", b"cHRM", b"iCCP"}


_PNG_EXIF = frozenset((b"eXIf",))


_BMP_HEADERS = frozenset((12, 40, 52, 56, 64, 108, 124))


_BMP_KINDS = frozenset(((1, 0), (4, 0), (8, 0), (8, 1), (24, 0), (32, 0), (32, 3)))  # bits of a pixel and compression


_BMP_MASKS = (0xFF0000, 0xFF00, 0xFF)  # of red, green and blue: what 32 bits are without masks


_TIFF_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}  # bytes, by type


# None, CCITT's three, LZW, JPEG, deflate, PackBits, deflate by its old number, Zstandard, WebP.
_TIFF_COMPRESSIONS = frozenset((1, 2, 3, 4, 5, 7, 8, 32773, 32946, 50000, 50001))


_TIFF_NUMBERS = frozenset((256, 257, 258, 259, 262, 266, 273, 277, 278, 279, 284, 317, 320, 322, 323, 324, 325, 339))


_TIFF_SINGLE = frozenset((256, 257, 259, 262, 266, 277, 278, 284, 317, 322, 323))


_TIFF_LONG = frozenset((256, 257, 273, 278, 279, 322, 323, 324, 325))  # the others are of 16 bits


_TIFF_CHANNELS = {0: (1,), 1: (1,), 2: (3, 4), 3: (1,), 5: (4,), 6: (3,)}  # by photometric interpretation


_MOST_STEPS = 100_000  # chunks, tags and strips; a file of nothing else must not keep a thread busy


_MOST_DEFLATED = 1032  # bytes that deflate makes of one, at most


# The same of LZW (12 bits stand for 3837 bytes at most) and of PackBits, by the number of the compression.
_TIFF_MOST = {5: 2600, 8: _MOST_DEFLATED, 32946: _MOST_DEFLATED, 32773: 64}


_PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type


_ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
"""First row and column of each pass of an interlaced PNG, and its steps."""


_AT_ONCE = 1 << 20


def _png(data: Encoded) -> None:
    at, n, pixels = 8, len(data), 0
    with memoryview(data) as view:
        for _ in range(_MOST_STEPS):
            if at + 12 > n:
                raise DecodeError(f"truncated PNG: {n} bytes without IEND")
            length, kind = _chunk(view, at)
            if not kind.isalpha() or (kind[0] < 0x60 and kind not in _CRITICAL):
                raise _damaged("PNG", f"an unknown chunk {kind!r} at byte {at}")
            if length > n - at - 12:
                raise DecodeError(
                    f"truncated PNG: {n} bytes without IEND, its {kind.decode()} of {length} bytes at byte {at} is cut"
                )
            end = at + 8 + length
            if kind in _CRITICAL and zlib.crc32(view[at + 4 : end]) != _sum(view, end)[0]:
                raise _damaged("PNG", f"the checksum of its {kind.decode()} at byte {at} is wrong")
            if kind == b"IEND":
                break
            pixels += length if kind == b"IDAT" else 0
            at = end + 4
        else:
            raise _damaged("PNG", f"no IEND within its first {_MOST_STEPS} chunks")
    width, height, bits, colour = struct.unpack_from(">IIBB", data, 16)
    needed = height * (width * bits * _PNG_CHANNELS[colour] // 8)
    if not pixels or needed > pixels * _MOST_DEFLATED:
        raise _damaged("PNG", f"{pixels} bytes of pixels cannot be those of {width}x{height}")


def without_ancillary(data: Encoded) -> bytes:
    """A PNG that passed its check, with only the chunks that its pixels need: any damage of the others is gone."""
    parts, at = [bytes(data[:8])], 8
    while True:
        length, kind = _chunk(data, at)
        if kind in _CRITICAL:
            parts.append(bytes(data[at : at + 12 + length]))
        if kind == b"IEND":
            return b"".join(parts)
        at += 12 + length


def read_in_several_ways(data: Encoded, gray: bool, turned: bool = False) -> bool:
    """Whether decoders make different pixels of an image that passed its check, though nothing is damaged.

    A TIFF, which has no checksum; a WebP of several parts; a BMP in runs, which may end early or wrap, and one with a
    short palette; a PNG that is animated, one of 16 bits, which some round to 8, and one of colours with a gamma if
    gray is wanted: some compute it in linear light.

    Args:
        data: the encoded image.
        gray: whether only its gray is wanted.
        turned: whether it is turned as its EXIF block says. There are readers that a damaged one brings down.
    """
    match data[0]:
        case 0x49 | 0x4D:
            return True
        case 0x52:
            return bytes(data[12:16]) == b"VP8X"
        case 0x42:
            (size,) = struct.unpack_from("<I", data, 14)
            if size == 12:
                return False
            bits, (colours,) = data[28], struct.unpack_from("<I", data, 46)
            return data[30] == 1 or (bits <= 8 and 0 < colours < 1 << bits)
        case 0x89:
            if data[24] == 16:
                return True
            wanted = _PNG_GAMMA if gray and data[25] & 2 else _PNG_FRAMES
            wanted = wanted | _PNG_EXIF if turned else wanted
            last, at = b"IEND" if turned else b"IDAT", 8
            while True:  # it ends, for the image passed its check
                length, kind = _chunk(data, at)
                if kind == last:
                    return False
                if kind in wanted:
                    return True
                at += 12 + length
    return False


def has_all_rows(data: Encoded) -> bool:
    """Whether the pixels of a PNG that passed its check are all there: Pillow takes missing rows for black ones.

    Decompresses it, in pieces that are thrown away.
    """
    width, height, bits, colour, _, _, interlaced = struct.unpack_from(">IIBBBBB", data, 16)
    depth = bits * _PNG_CHANNELS[colour]
    passes = _ADAM7 if interlaced else ((0, 0, 1, 1),)
    sizes = [(-(-(height - y) // down), -(-(width - x) // right)) for y, x, down, right in passes]
    needed: int = sum(rows * (1 + (columns * depth + 7) // 8) for rows, columns in sizes if rows > 0 and columns > 0)
    stream, at, kind = zlib.decompressobj(), 8, b""
    with memoryview(data) as view:
        while needed > 0 and kind != b"IEND":
            length, kind = _chunk(view, at)
            rest: Encoded = view[at + 8 : at + 8 + length]
            more = kind == b"IDAT"
            while needed > 0 and more:
                most = min(needed, _AT_ONCE)  # what lies behind the last row is not looked at
                try:
                    n = len(stream.decompress(rest, most))
                except zlib.error:
                    return False
                needed -= n
                rest = stream.unconsumed_tail
                more = n == most or len(rest) > 0
            at += 12 + length
    return needed <= 0


def _bmp(data: Encoded) -> None:
    offset, size = struct.unpack_from("<II", data, 10)
    if size not in _BMP_HEADERS:
        raise _damaged("BMP", f"its header says that it is {size} bytes long")
    colours = compression = 0
    if size == 12:
        width, height, planes, bits = struct.unpack_from("<HHHH", data, 18)
    else:
        width, height, planes, bits, compression = struct.unpack_from("<iiHHI", data, 18)
        (colours,) = struct.unpack_from("<I", data, 46)
    if (bits, compression) not in _BMP_KINDS:
        raise DecodeError(
            "a BMP of 1, 4, 8, 24 or 32 bits, or of 8 in runs, is needed, its header says "
            f"{bits} bits, compression {compression}"
        )
    if planes != 1 or width <= 0:
        raise _damaged("BMP", f"its header says {planes} planes, width {width}")
    palette = 0
    if bits <= 8:
        if colours > 1 << bits or colours == 1 == bits:
            raise _damaged("BMP", f"it has {bits} bits and a palette of {colours} colours")
        palette = (colours or 1 << bits) * (3 if size == 12 else 4)
    if compression == 3:
        masks = struct.unpack_from("<III", data, 54)
        if masks != _BMP_MASKS:
            raise DecodeError(f"a BMP of 8 bits a channel is needed, its masks are {masks}")
        palette = 12 if size == 40 else 0
    if offset < 14 + size + palette:
        raise _damaged("BMP", f"its pixels begin at byte {offset}, its header ends at {14 + size + palette}")
    needed = offset + (width * bits + 31) // 32 * 4 * abs(height)
    if compression == 1:  # runs, whose length the header says
        needed = offset + struct.unpack_from("<I", data, 34)[0]
    if needed > len(data):
        raise DecodeError(f"truncated BMP: {needed} bytes are needed, {len(data)} are there")


def _webp(data: Encoded) -> None:
    end = int.from_bytes(data[4:8], "little") + 8
    if end > len(data):
        raise DecodeError(f"truncated WebP: {end} bytes are needed, {len(data)} are there")
    at, frame, canvas = 12, False, None
    for _ in range(_MOST_STEPS):
        if at + 8 > end:
            break
        kind, length = struct.unpack_from("<4sI", data, at)
        if length > end - at - 8:
            raise _damaged("WebP", f"its {kind!r} of {length} bytes at byte {at} ends behind byte {end}, its end")
        if kind == b"VP8X":
            if length < 10 or data[at + 8] & 0xC1:
                raise _damaged("WebP", f"its VP8X has {length} bytes and the flags {data[at + 8]:02x}")
            canvas = (
                1 + int.from_bytes(data[at + 12 : at + 15], "little"),
                1 + int.from_bytes(data[at + 15 : at + 18], "little"),
            )
        elif kind == b"ANMF":  # of an animation, of which the first frame is taken
            frame = True
        elif kind in (b"VP8 ", b"VP8L") and not frame:
            frame = True
            size = _webp_frame(data, at + 8, length, kind)
            if canvas not in (None, size):
                raise _damaged("WebP", f"its frame is {size[0]}x{size[1]}, its header says {canvas}")
        at += 8 + length + (length & 1)
    if at != end or not frame:
        raise _damaged("WebP", f"its parts end at byte {at}, it says {end}" if frame else "it has no frame")


def without_tail(data: Encoded) -> bytes | None:
    """A WebP of one part that passed its check, without what follows it; None if nothing does, or if it has several.

    libwebp's plain decoder goes on reading there where the frame ends too early, its other one does not.
    """
    kind, length = struct.unpack_from("<4sI", data, 12)
    end: int = 20 + length + (length & 1)
    if kind == b"VP8X" or end == len(data):
        return None
    return bytes(data[:4]) + (end - 8).to_bytes(4, "little") + bytes(data[8:end])


def _webp_frame(data: Encoded, at: int, length: int, kind: bytes) -> tuple[int, int]:
    """Check the begin of a frame; answer its (width, height)."""
    if kind == b"VP8L":
        signature, packed = struct.unpack_from("<BI", data, at)
        if length < 5 or signature != 0x2F or packed >> 29:
            raise _damaged("WebP", "its lossless frame does not begin as one of version 0")
        return (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1
    tag = int.from_bytes(data[at : at + 3], "little")
    start, width, height = struct.unpack_from("<3sHH", data, at + 3)
    if tag & 1 or tag >> 1 & 7 > 3 or not tag >> 4 & 1 or start != b"\x9d\x01\x2a" or (tag >> 5) > length - 10:
        raise _damaged("WebP", "its frame does not begin as a key frame that is shown and fits in")
    return width & 0x3FFF, height & 0x3FFF


def _tiff(data: Encoded) -> None:
    n, order = len(data), "<" if data[0] == 0x49 else ">"
    tags = _tiff_tags(data, order)

    def one(tag: int, default: int = 0) -> int:
        found = tags.get(tag)
        return found[0] if found else default

    height, width, channels, bits = one(257), one(256), one(277, 1), tags.get(258, (1,))
    compression, kind, planes = one(259, 1), one(262, -1), one(284, 1)
    if compression not in _TIFF_COMPRESSIONS:
        raise _unsupported(
            f"a TIFF without compression, or one of {sorted(_TIFF_COMPRESSIONS)[1:]}, is needed, "
            f"got number {compression}"
        )
    deep = bits[0]
    depths = (8, 16) if kind in (1, 2) else (8,)
    if channels == 1 and kind in (0, 1) and compression != 1:
        depths = (1, *depths)
    odd = {tag: one(tag) for tag, legal in ((266, (0, 1)), (339, (0, 1)), (317, (0, 1, 2))) if one(tag) not in legal}
    if deep not in depths or len(set(bits)) > 1 or len(bits) not in (1, channels) or odd or planes != 1:
        raise _unsupported(
            f"a TIFF of 8 or 16 bits, pixel by pixel, is needed, got bits {bits[:4]}, planes {planes}, tags {odd}"
        )
    if (compression in (2, 3, 4) and deep != 1) or (kind == 3 and len(tags.get(320, ())) != 3 << deep):
        raise _damaged("TIFF", f"{deep} bits do not fit compression {compression} or a palette of its length")
    if channels not in _TIFF_CHANNELS.get(kind, ()):
        raise _unsupported(
            "a TIFF of gray, RGB, RGBA, CMYK, YCbCr or a palette is needed, got one of "
            f"{channels} channel{'s' * (channels != 1)} with photometric interpretation {kind}"
        )
    tiles = 322 in tags
    if tiles:
        across, rows = one(322), one(323)
        if not (across and rows) or across % 16 or rows % 16:
            raise _damaged("TIFF", f"its tiles are {across}x{rows}")
        wanted = -(-width // across) * -(-height // rows)
    else:
        across, rows = width, min(one(278, height), height)
        if not rows:
            raise _damaged("TIFF", "its strips have no rows")
        wanted = -(-height // rows)
    starts, counts = tags.get(324 if tiles else 273, ()), tags.get(325 if tiles else 279, ())
    if len(starts) != wanted or len(counts) != wanted:
        raise _damaged("TIFF", f"it needs {wanted} parts, has {len(starts)} offsets and {len(counts)} lengths")
    line = (across * channels * deep + 7) // 8
    for i, (start, count) in enumerate(zip(starts, counts, strict=True)):
        if start < 8 or start + count > n:
            raise DecodeError(f"truncated TIFF: {start + count} bytes are needed, {n} are there")
        here = rows if tiles else min(rows, height - i * rows)
        if compression == 1 and kind != 6 and count != line * here:
            raise _damaged("TIFF", f"part {i} has {count} bytes, its pixels {line * here}")
        if line * here > count * _TIFF_MOST.get(compression, 1 << 62):
            raise _damaged("TIFF", f"part {i} has {count} bytes, which cannot be {line * here} of pixels")
        if compression == 7 and count * across * here > MOST_SCANNED:
            scans = bytes(data[start : start + count]).count(b"\xff\xda")
            if scans > max(FEW_SCANS, MOST_PASSED // (across * here)):
                raise _damaged("TIFF", f"part {i} is a JPEG of {scans} scans")


def without_orientation(data: Encoded) -> Encoded:
    """A TIFF that passed its check, as it is stored: Pillow turns one upright, asked or not."""
    order = "<" if data[0] == 0x49 else ">"
    (at,) = struct.unpack_from(f"{order}I", data, 4)
    (count,) = struct.unpack_from(f"{order}H", data, at)
    for place in range(at + 2, at + 2 + 12 * count, 12):
        tag, kind, values, value = struct.unpack_from(f"{order}HHIH", data, place)
        if tag == 274:
            if (kind, values, value) == (3, 1, 1):
                break
            out = bytearray(data)
            struct.pack_into(f"{order}HIHH", out, place + 2, 3, 1, 1, 0)
            return out
    return data


def _tiff_tags(data: Encoded, order: str) -> dict[int, tuple[int, ...]]:
    """The numbers of the tags that matter to the pixels. Every entry must lie in the file, in ascending order."""
    n = len(data)
    (at,) = struct.unpack_from(f"{order}I", data, 4)
    (count,) = struct.unpack_from(f"{order}H", data, at)
    tags: dict[int, tuple[int, ...]] = {}
    last = -1
    for place in range(at + 2, at + 2 + 12 * count, 12):
        tag, kind, values, value = struct.unpack_from(f"{order}HHII", data, place)
        size = _TIFF_SIZES.get(kind, 0) * values
        where = value if size > 4 else place + 8
        if tag <= last or not size or where + size > n:
            raise _damaged("TIFF", f"its tag {tag} behind {last} is out of order, of no known type, or out of the file")
        last = tag
        if tag in _TIFF_NUMBERS:
            if (
                kind not in (3, 4)
                or values > _MOST_STEPS
                or (kind == 4 and tag not in _TIFF_LONG)
                or (tag in _TIFF_SINGLE and values != 1)
            ):
                raise _damaged("TIFF", f"its tag {tag} is {values} of type {kind}")
            tags[tag] = struct.unpack_from(f"{order}{values}{'H' if kind == 3 else 'I'}", data, where)
    _tiff_pages(data, order, at + 2 + 12 * count)
    return tags


def _tiff_pages(data: Encoded, order: str, place: int) -> None:
    """Check that the further images, of which none is decoded, look like some: a decoder may read them all."""
    left = _MOST_STEPS
    while left > 0:
        (at,) = struct.unpack_from(f"{order}I", data, place)
        if not at:
            return
        (count,) = struct.unpack_from(f"{order}H", data, at)
        place, left = at + 2 + 12 * count, left - count
        if at < 8 or not count or place + 4 > len(data):
            raise _damaged("TIFF", f"one of its images has {count} tags at byte {at} of {len(data)}")
        tags = [struct.unpack_from(f"{order}H", data, entry)[0] for entry in range(at + 2, place, 12)]
        if 256 not in tags or 257 not in tags or tags != sorted(set(tags)):
            raise _damaged("TIFF", f"its image at byte {at} has no size, or tags that are out of order")
    raise _damaged("TIFF", f"its images have more than {_MOST_STEPS} tags, or go round in a ring")


def _unsupported(why: str) -> DecodeError:
    """A TIFF of a kind that is legal and that not all decoders read, or not alike."""
    return DecodeError(f"{why}; read such a file in an ops.py_function, with tifffile for example")


def _damaged(what: str, why: str) -> DecodeError:
    return DecodeError(f"damaged {what}: {why}")


CHECKS: dict[str, Any] = {"png": _png, "bmp": _bmp, "webp": _webp, "tiff": _tiff}
"""The check of each format: it is given the encoded image and raises DecodeError, or struct.error where it is cut."""
