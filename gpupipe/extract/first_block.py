"""first_block: how bright the first 8x8 pixels of a JPEG are, read from its bytes without decoding it.

The first code of the first scan is the mean of that block. What a decoder made of the file must agree with it, which is
the cheapest thing that a host knows of an image's pixels: some microseconds, where decoding takes a millisecond.
"""

from __future__ import annotations

import struct

__all__ = ["mean_of_first_block"]

_segment = struct.Struct(">BBH").unpack_from
_FRAMES = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive: those with Huffman codes
_PROGRESSIVE = 0xC2
_MOST_BITS = 11  # of the difference of two means, for samples of 8 bits
_MOST = 64  # segments; photographs have ten


def mean_of_first_block(data: bytes | bytearray | memoryview) -> float | None:
    """The mean gray (Y) of the upper left 8x8 pixels as stored, 0..255.

    None where these bytes do not say it in the usual way: no JPEG, arithmetic codes, colours that are not YCbCr (with
    Adobe's segment), a first scan without the first component, a block that sampling spreads over more pixels, damage.
    """
    try:
        return _mean(data)
    except (struct.error, IndexError, KeyError):
        return None


def _mean(data: bytes | bytearray | memoryview) -> float | None:
    tables: list[tuple[int, int]] = []  # begin and end of the segments of Huffman codes
    quantizers: list[tuple[int, int]] = []
    frame = at = 2
    progressive = False
    for _ in range(_MOST):
        prefix, marker, length = _segment(data, at)
        if prefix != 0xFF or length < 2 or marker == 0xFF or marker == 0xEE:
            return None
        if marker == 0xC4:
            tables.append((at + 4, at + 2 + length))
        elif marker == 0xDB:
            quantizers.append((at + 4, at + 2 + length))
        elif marker in _FRAMES:
            frame, progressive = at + 4, marker == _PROGRESSIVE
        elif marker == 0xDA:
            break
        elif 0xC0 <= marker <= 0xCF or marker == 0xD9:
            return None
        at += 2 + length
    else:
        return None
    count = data[frame + 5]
    # The first component has to be Y with the finest sampling, and the scan to begin with it.
    factors = data[frame + 7]
    if frame == 2 or data[frame] != 8 or count not in (1, 3) or data[at + 5] != data[frame + 6]:
        return None
    if count == 3 and any(
        data[frame + 7 + 3 * k] >> 4 > factors >> 4 or data[frame + 7 + 3 * k] & 15 > factors & 15 for k in (1, 2)
    ):
        return None
    parts = data[at + 4]
    low = data[at + 7 + 2 * parts] & 15 if progressive else 0
    level = _first_level(bytes(data[at + 2 + length : at + 12 + length]), _code(data, tables, data[at + 6] >> 4))
    return None if level is None else (level << low) * _step(data, quantizers, data[frame + 8]) / 8 + 128


def _code(data: bytes | bytearray | memoryview, tables: list[tuple[int, int]], wanted: int) -> bytes:
    """16 numbers of codes of each length, then their values: the last table of DC codes with this number."""
    found = b""
    for start, end in tables:
        while start < end:
            values = sum(data[start + 1 : start + 17])
            if data[start] == wanted:
                found = bytes(data[start + 1 : start + 17 + values])
            start += 17 + values
    return found


def _step(data: bytes | bytearray | memoryview, quantizers: list[tuple[int, int]], wanted: int) -> int:
    """The quantizer of the mean.

    Raises:
        KeyError: there is no such table.
    """
    found = 0
    for start, end in quantizers:
        while start < end:
            wide = data[start] >> 4
            if data[start] & 15 == wanted:
                found = data[start + 1] << 8 | data[start + 2] if wide else data[start + 1]
            start += 129 if wide else 65
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
