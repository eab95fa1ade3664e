"""first_block: how bright the first 8x8 pixels of a JPEG are, read from its bytes without decoding it.

The first code of the first scan is the mean of that block. What a decoder made of the file must agree with it, which is
the cheapest thing that a host knows of an image's pixels: some microseconds, where decoding takes a millisecond.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

__all__ = ["mean_of_first_block"]

_segment = struct.Struct(">BBH").unpack_from


_SOI = 2  # bytes of the mark that a file begins with


_HEADER = 4  # bytes of a segment before its contents: marker and length


_HUFFMAN, _QUANTIZERS, _SCAN, _END, _ADOBE = 0xC4, 0xDB, 0xDA, 0xD9, 0xEE


_FRAMES = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive: those with Huffman codes


_OTHER_FRAMES = range(0xC3, 0xD0)


_PROGRESSIVE = 0xC2


_COMPONENTS = 6  # where a frame lists them: number, sampling, table of quantizers


_RGB = b"RGB"  # numbers of components that libjpeg takes for colours


_MOST_BITS = 11  # of the difference of two means, for samples of 8 bits


_MOST_SEGMENTS = 64  # photographs have ten


_MOST_TABLES = 8  # in one segment: JPEG knows 8 codes and 4 tables of quantizers


_MOST_DROPPED = 4.0
"""Levels that the first scan of a progressive file may leave open: half of them and the error of a decoder, up to 1.6,
stay below the 4 by which `proof` lets the means differ."""


_Span = tuple[int, int]


@dataclass(slots=True)
class _Head:
    """What stands before the first code, as places in the file.

    Attributes:
        codes: begin and end of what each segment of Huffman codes holds.
        quantizers: the same of tables of quantizers.
        frame: begin of the frame's contents, None before one is found.
        progressive: whether the frame is.
        scan: begin of the contents of the first scan's header.
        data: where the codes of that scan begin.
    """

    codes: list[_Span]
    quantizers: list[_Span]
    frame: int | None = None
    progressive: bool = False
    scan: int = 0
    data: int = 0


def mean_of_first_block(data: bytes | bytearray | memoryview) -> float | None:
    """The mean gray (Y) of the upper left 8x8 pixels as stored, about 0..255: to the half level that its code counts.

    A progressive file's first scan may leave the last bits to a later one: then it is the middle of what they may be.

    None where these bytes do not say it in the usual way: no JPEG, arithmetic codes, colours that are not YCbCr (with
    Adobe's segment, or components called R, G and B), a first scan without the first component or which leaves more
    than 4 levels open, a block that sampling spreads over more pixels, damage.

    Args:
        data: the file; any object that lends its bytes, as a NumPy array does.
    """
    try:
        return _mean(data if isinstance(data, bytes) else _lent(data))
    except (struct.error, IndexError, KeyError):
        return None


def _lent(data: bytearray | memoryview) -> bytes | memoryview:
    """Bytes whose items are Python's integers, which NumPy's are not: those of 8 bits wrap."""
    lent = memoryview(data)
    return lent.cast("B") if lent.c_contiguous and lent.nbytes else lent.tobytes()


def _mean(data: bytes | memoryview) -> float | None:
    head = _head(data)
    if head is None or head.frame is None:
        return None
    depth, count = data[head.frame], data[head.frame + 5]
    first = head.frame + _COMPONENTS
    numbers = bytes(data[first : first + 3 * count : 3])
    chosen = data[head.scan]
    # The first component has to be Y with the finest sampling, and the scan to begin with it.
    if depth != 8 or count not in (1, 3) or numbers == _RGB or data[head.scan + 1] != numbers[0]:
        return None
    across, down = data[first + 1] >> 4, data[first + 1] & 15
    if count == 3:
        second, third = data[first + 4], data[first + 7]
        if max(second >> 4, third >> 4) > across or max(second & 15, third & 15) > down:
            return None
    dropped = 0
    if head.progressive:
        begin, bits = data[head.scan + 1 + 2 * chosen], data[head.scan + 3 + 2 * chosen]
        if begin or bits >> 4:  # a scan of other coefficients, or one that adds bits to an earlier one
            return None
        dropped = (1 << bits) - 1
    step = _step(data, head.quantizers, data[first + 2]) / 8
    if dropped * step > _MOST_DROPPED:
        return None
    level = _first_level(bytes(data[head.data : head.data + 10]), _code(data, head.codes, data[head.scan + 2] >> 4))
    # Bits are dropped by an arithmetic shift, of negative numbers, too: what is left is never above what was there.
    return None if level is None else (level * (dropped + 1) + dropped / 2) * step + 128


def _head(data: bytes | memoryview) -> _Head | None:
    """Walk the segments up to the first scan; None where one of them is not as usual."""
    head, at = _Head([], []), _SOI
    for _ in range(_MOST_SEGMENTS):
        prefix, marker, length = _segment(data, at)
        contents, end = at + _HEADER, at + 2 + length
        if prefix != 0xFF or length < 2 or marker in (0xFF, _ADOBE, _END):
            return None
        if marker == _SCAN:
            head.scan, head.data = contents, end
            return head
        if marker == _HUFFMAN:
            head.codes.append((contents, end))
        elif marker == _QUANTIZERS:
            head.quantizers.append((contents, end))
        elif marker in _FRAMES:
            head.frame, head.progressive = contents, marker == _PROGRESSIVE
        elif marker in _OTHER_FRAMES:
            return None
        at = end
    return None


def _code(data: bytes | memoryview, segments: list[_Span], wanted: int) -> bytes:
    """16 numbers of codes of each length, then their values: the last table of DC codes with this number.

    Raises:
        KeyError: there is no such table, or a segment has more than it may.
    """
    found = b""
    for start, end in segments:
        for _ in range(_MOST_TABLES):
            if start >= end:
                break
            values = start + 17 + sum(data[start + 1 : start + 17])
            if data[start] == wanted:
                found = bytes(data[start + 1 : values])
            start = values
        if start < end:
            raise KeyError(wanted)
    if not found:
        raise KeyError(wanted)
    return found


def _step(data: bytes | memoryview, segments: list[_Span], wanted: int) -> int:
    """The quantizer of the mean.

    Raises:
        KeyError: there is no such table, or a segment has more than it may.
    """
    found = 0
    for start, end in segments:
        for _ in range(_MOST_TABLES):
            if start >= end:
                break
            wide = data[start] >> 4
            if data[start] & 15 == wanted:
                found = data[start + 1] << 8 | data[start + 2] if wide else data[start + 1]
            start += 129 if wide else 65
        if start < end:
            raise KeyError(wanted)
    if not found:
        raise KeyError(wanted)
    return found


def _first_level(scan: bytes, code: bytes) -> int | None:
    """The number that a scan begins with, None where the code has no such word."""
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
