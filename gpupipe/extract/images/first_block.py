"""first_block: the mean of the first 8x8 pixels of a JPEG, read from its bytes without decoding it.

The first code of the first scan is the mean of that block, and decoded pixels must agree with it. It is the cheapest
check of an image's pixels on the host: some microseconds, while decoding takes a millisecond.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from gpupipe.extract.images.jpeg import jpeg_segments

__all__ = ["mean_of_first_block"]

_HUFFMAN, _QUANTIZERS, _SCAN, _ADOBE = 0xC4, 0xDB, 0xDA, 0xEE


_FRAMES = frozenset(range(0xC0, 0xD0)) - {_HUFFMAN}


_WITH_CODES = frozenset((0xC0, 0xC1, 0xC2))  # baseline, extended, progressive: the frames with Huffman codes


_PROGRESSIVE = 0xC2


_COMPONENTS = 6  # offset in a frame of its components: id, sampling, table of quantizers


_RGB = b"RGB"  # component ids that libjpeg takes for RGB


_MOST_BITS = 11  # of the difference of two means, for samples of 8 bits


_MOST_TABLES = 8  # in one segment: JPEG has at most 8 codes and 4 tables of quantizers


_MOST_DROPPED = 4.0
"""Levels that the first scan of a progressive file may leave open: half of them plus a decoder's error, up to 1.6, stay
below the 4 by which `proof` lets the means differ."""


_Segment = tuple[int, int, int]  # marker, start and end of the contents


def mean_of_first_block(data: bytes | bytearray | memoryview) -> float | None:
    """Return the mean gray (Y) of the upper left 8x8 pixels as stored, about 0..255, within the half level of its code.

    The first scan of a progressive file may leave the last bits to a later one: then the middle of their range counts.

    The result is None if the bytes do not hold it in the usual way: not a JPEG, arithmetic codes, colours that are not
    YCbCr (with Adobe's segment, or components called R, G and B), a first scan without the first component or which
    leaves more than 4 levels open, a block that sampling spreads over more pixels, damage.

    Args:
        data: the file; any object with the buffer protocol, such as a NumPy array.
    """
    try:
        return _mean(data if isinstance(data, bytes) else _as_bytes(data))
    except (struct.error, IndexError, KeyError):
        return None


def _as_bytes(data: bytearray | memoryview) -> bytes | memoryview:
    """View bytes so that their items are Python's integers: NumPy's of 8 bits would wrap."""
    view = memoryview(data)
    return view.cast("B") if view.c_contiguous and view.nbytes else view.tobytes()


def _mean(data: bytes | memoryview) -> float | None:
    found: dict[int, list[_Segment]] = {}
    for segment in jpeg_segments(data):
        found.setdefault(segment[0], []).append(segment)
    kinds = [marker for marker in found if marker in _FRAMES]
    if len(kinds) != 1 or kinds[0] not in _WITH_CODES or _ADOBE in found:
        return None
    (kind, frame, _), (_, scan, codes) = found[kinds[0]][-1], found[_SCAN][0]
    depth, count, chosen = data[frame], data[frame + 5], data[scan]
    first = frame + _COMPONENTS
    ids = bytes(data[first : first + 3 * count : 3])
    # The first component has to be Y with the finest sampling, and the scan has to start with it.
    if depth != 8 or count not in (1, 3) or ids == _RGB or data[scan + 1] != ids[0]:
        return None
    across, down = data[first + 1] >> 4, data[first + 1] & 15
    if count == 3:
        second, third = data[first + 4], data[first + 7]
        if max(second >> 4, third >> 4) > across or max(second & 15, third & 15) > down:
            return None
    dropped = 0
    if kind == _PROGRESSIVE:
        band, bits = data[scan + 1 + 2 * chosen], data[scan + 3 + 2 * chosen]
        if band or bits >> 4:  # a scan of other coefficients, or one that adds bits to an earlier one
            return None
        dropped = (1 << bits) - 1
    table = _table(data, found[_QUANTIZERS], 15, data[first + 2], lambda at: 129 if data[at] >> 4 else 65)
    step = (data[table + 1] << 8 | data[table + 2] if data[table] >> 4 else data[table + 1]) / 8
    if dropped * step > _MOST_DROPPED:
        return None
    table = _table(data, found[_HUFFMAN], 255, data[scan + 2] >> 4, lambda at: 17 + sum(data[at + 1 : at + 17]))
    code = bytes(data[table + 1 : table + 17 + sum(data[table + 1 : table + 17])])
    level = _first_level(bytes(data[codes : codes + 10]), code)
    # Bits are dropped by an arithmetic shift, also of negative numbers: the shifted level is never above the true one.
    return None if level is None else (level * (dropped + 1) + dropped / 2) * step + 128


def _table(
    data: bytes | memoryview, segments: list[_Segment], mask: int, wanted: int, length: Callable[[int], int]
) -> int:
    """Find the offset of the last table with an id, in segments of one kind; ids of DC codes are at most 15.

    Raises:
        KeyError: there is no such table, or a segment has too many.
    """
    found = None
    for _, start, end in segments:
        for _ in range(_MOST_TABLES):
            if start >= end:
                break
            if data[start] & mask == wanted:
                found = start
            start += length(start)
        if start < end:
            raise KeyError(wanted)
    if found is None:
        raise KeyError(wanted)
    return found


def _first_level(scan: bytes, code: bytes) -> int | None:
    """Decode the first number of a scan, None if the code has no such word."""
    bits = int.from_bytes((scan.replace(b"\xff\x00", b"\xff") + bytes(5))[:5], "big")
    word = first = index = 0
    for length in range(1, 17):
        word = bits >> (40 - length)
        many = code[length - 1]
        if word - first < many:
            size = code[16 + index + word - first]
            if not 0 < size <= _MOST_BITS:
                return 0 if size == 0 else None
            level = (bits >> (40 - length - size)) & ((1 << size) - 1)
            return level if level >> (size - 1) else level - (1 << size) + 1
        index += many
        first = (first + many) << 1
    return None
