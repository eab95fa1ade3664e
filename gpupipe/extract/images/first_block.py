"""first_block: the mean of the first 8x8 pixels of a JPEG, read from its bytes without decoding it.

The first code of the first scan is the mean of that block, and decoded pixels must agree with it. It is the cheapest
check of an image's pixels on the host: some microseconds, while decoding takes a millisecond.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from gpupipe.extract.images.jpeg import jpeg_segments

__all__ = ["BLOCK", "MOST_BITS", "mean_of_first_block"]

BLOCK = 8
"""Side of a block in pixels."""


_HUFFMAN, _QUANTIZERS, _SCAN, _ADOBE = 0xC4, 0xDB, 0xDA, 0xEE


_FRAMES = frozenset(range(0xC0, 0xD0)) - {_HUFFMAN}


_WITH_CODES = frozenset((0xC0, 0xC1, 0xC2))  # baseline, extended, progressive: the frames with Huffman codes


_PROGRESSIVE = 0xC2


_RGB = b"RGB"  # component ids that libjpeg takes for RGB


MOST_BITS = 11
"""Bits of the difference of two means, for samples of 8 bits."""


_MOST_TABLES = 8  # in one segment: JPEG has at most 8 codes and 4 tables of quantizers


_MOST_DROPPED = 4.0
"""Levels that the first scan of a progressive file may leave open: half of them plus a decoder's error, up to 1.6, stay
below the 4 by which `proof` lets the means differ."""


_READ = 10
"""Bytes of the scan in which its first number ends."""


_frame = struct.Struct(">B4xBBBB").unpack_from  # depth, number of components; id, sampling, quantizers of the first


_scan = struct.Struct(">BBB").unpack_from  # number of components; id and codes of the first


_Segment = tuple[int, int]  # start and end of the contents


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
    if view.format == "B" and view.c_contiguous and view.ndim == 1:
        return view
    return view.cast("B") if view.c_contiguous and view.nbytes else view.tobytes()


def _mean(data: bytes | memoryview) -> float | None:
    kind = frame = scan = codes = 0
    quantizers, huffman = [], []
    for marker, start, end in jpeg_segments(data):
        if marker == _HUFFMAN:
            huffman.append((start, end))
        elif marker == _QUANTIZERS:
            quantizers.append((start, end))
        elif marker == _SCAN:
            scan, codes = start, end
        elif marker in _FRAMES:
            if kind not in (0, marker):
                return None
            kind, frame = marker, start
        elif marker == _ADOBE:
            return None
    if kind not in _WITH_CODES or not scan:
        return None
    head = bytes(data[: codes + _READ])
    depth, count, name, sampling, quantizer = _frame(head, frame)
    chosen, first, selected = _scan(head, scan)
    # The first component has to be Y with the finest sampling, and the scan has to start with it.
    if depth != 8 or first != name or not (count == 1 or (count == 3 and _is_finest(head, frame, sampling))):
        return None
    dropped = 0
    if kind == _PROGRESSIVE:
        band, bits = head[scan + 1 + 2 * chosen], head[scan + 3 + 2 * chosen]
        if band or bits >> 4:  # a scan of other coefficients, or one that adds bits to an earlier one
            return None
        dropped = (1 << bits) - 1
    step = _first_step(head, quantizers, quantizer) / 8
    if dropped * step > _MOST_DROPPED:
        return None
    level = _first_level(head[codes:], _code(head, huffman, selected >> 4))
    # Bits are dropped by an arithmetic shift, also of negative numbers: the shifted level is never above the true one.
    return None if level is None else (level * (dropped + 1) + dropped / 2) * step + 128


def _is_finest(head: bytes, frame: int, sampling: int) -> bool:
    """Whether the first of three components has the finest sampling, and they are not called R, G and B."""
    names, second, third = head[frame + 6 : frame + 15 : 3], head[frame + 10], head[frame + 13]
    across, down = sampling >> 4, sampling & 15
    return names != _RGB and max(second >> 4, third >> 4) <= across and max(second & 15, third & 15) <= down


def _first_step(head: bytes, segments: list[_Segment], wanted: int) -> int:
    """The first number of a table of quantizers."""
    at, _ = _last_table(head, segments, 15, wanted, lambda at: 129 if head[at] >> 4 else 65)
    return head[at + 1] << 8 | head[at + 2] if head[at] >> 4 else head[at + 1]


def _code(head: bytes, segments: list[_Segment], wanted: int) -> bytes:
    """A Huffman code: how many words of each length there are, and their meanings. Ids of DC codes are at most 15."""
    at, end = _last_table(head, segments, 255, wanted, lambda at: 17 + sum(head[at + 1 : at + 17]))
    return head[at + 1 : end]


def _last_table(
    head: bytes, segments: list[_Segment], mask: int, wanted: int, length: Callable[[int], int]
) -> tuple[int, int]:
    """Find where the last table with an id starts and ends, in segments of one kind.

    Raises:
        KeyError: there is no such table, or a segment after it has too many.
    """
    for at, end in reversed(segments):
        found = None
        for _ in range(_MOST_TABLES):
            if at >= end:
                break
            after = at + length(at)
            if head[at] & mask == wanted:
                found = at, after
            at = after
        if at < end:
            break
        if found is not None:
            return found
    raise KeyError(wanted)


def _first_level(scan: bytes, code: bytes) -> int | None:
    """Decode the first number of a scan, None if the code has no such word."""
    bits = int.from_bytes((scan.replace(b"\xff\x00", b"\xff") + bytes(5))[:5], "big")
    first, index, left = 0, 16, 40  # `first` is the first word of a length, as 40 bits
    for many in code[:16]:
        left -= 1
        beyond = first + (many << left)
        if bits < beyond:
            size = code[index + ((bits - first) >> left)]
            if not 0 < size <= MOST_BITS:
                return 0 if size == 0 else None
            level = (bits >> (left - size)) & ((1 << size) - 1)
            return level if level >> (size - 1) else level - (1 << size) + 1
        first = beyond
        index += many
    return None
