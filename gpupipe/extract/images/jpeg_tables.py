"""jpeg_tables: whether the header of a JPEG describes its first scan completely and without contradiction.

Decoders differ on a header that does not: libjpeg refuses a scan of a component that the frame lacks, and decodes a
file without Huffman tables; decoders of GPUs may do the opposite. The rules are those of ITU-T T.81, sections B.2.2 to
B.2.4 (frame, scan, tables) and C.2 (codes).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import mul

__all__ = ["describes_its_scan"]

_HUFFMAN, _QUANTIZERS, _SCAN, _RESTARTS = 0xC4, 0xDB, 0xDA, 0xDD
_NOTES = frozenset((*range(0xE0, 0xF0), 0xFE))  # of applications, and comments
_MOST_SEGMENTS = 1000
"""A profile or EXIF of 16 MB takes 256."""
_MOST_TABLES = 8
"""In one segment: there are at most 4 for DC and 4 for AC coefficients."""
_FRAMES = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive: with Huffman codes
_PROGRESSIVE = 0xC2
_SIZE = 5
"""Where the height and width in a frame end; they start at its second byte."""
_MOST_KEPT = 4096
"""Bytes of a header whose answer is kept."""
_AC = 0x10  # a Huffman table is stored with its number, 0 to 3, plus 16 if it is for AC coefficients
_ALL = 1 << 16
_SHARES = tuple(_ALL >> bits for bits in range(1, 17))
"""The part of all codes that one of so many bits takes."""
_MOST_BLOCKS = 10
"""That a scan of several components may interleave (T.81, B.2.3)."""
_MOST_DC = 15
"""An upper bound of a DC symbol, the number of bits of a difference."""


def describes_its_scan(data: bytes | bytearray | memoryview, segments: Sequence[tuple[int, int, int]]) -> bool:
    """Whether the tables, frame and first scan of a JPEG with Huffman codes are complete and agree.

    Args:
        data: the encoded image.
        segments: marker, start and end of each of its segments up to the first scan.

    Returns:
        True if there is one frame; every segment is of a kind that libjpeg knows and follows the one before; each
        component has a quantisation table and sampling factors of 1 to 4 that divide the largest; the first scan names
        components of the frame, each once, of at most 10 blocks together, whose Huffman tables exist; and all tables
        are well formed. Later scans and the tables between them are not looked at.
    """
    if len(segments) > _MOST_SEGMENTS:
        return False
    expected = 2
    header: list[bytes | bytearray | memoryview] = []
    for marker, start, end in segments:
        if start - 4 != expected:
            return False
        expected = end
        if marker in _FRAMES and end - start > _SIZE:
            # Nothing depends on the size, so files that differ in nothing else are looked at once.
            header += [data[start - 4 : start + 1], bytes(4), data[start + _SIZE : end]]
        elif marker not in _NOTES:
            header.append(data[start - 4 : end])
    if expected > len(data):
        return False
    whole = b"".join(header)
    return (_agree if len(whole) <= _MOST_KEPT else _agree.__wrapped__)(whole)


@lru_cache(256)  # files of one encoder and quality have equal tables
def _agree(header: bytes) -> bool:
    """`describes_its_scan` of a header's tables, frame, restart interval and scan, one after another."""
    codes: set[int] = set()
    quantizers: set[int] = set()
    frame = b""
    kind, at = 0, 0
    while at < len(header):
        marker, segment = header[at + 1], header[at + 4 : at + 2 + int.from_bytes(header[at + 2 : at + 4], "big")]
        at += 4 + len(segment)
        if marker == _HUFFMAN:
            if not (found := _codes(segment)):
                return False
            codes |= found
        elif marker == _QUANTIZERS:
            if not (found := _quantizers(segment)):
                return False
            quantizers |= found
        elif marker == _SCAN:
            needs = _needs(frame[5:], segment, kind == _PROGRESSIVE)
            return needs is not None and needs[0] <= codes and needs[1] <= quantizers
        elif marker & 0xF0 == 0xC0:
            if frame or marker not in _FRAMES:
                return False
            kind, frame = marker, segment
        elif marker != _RESTARTS or len(segment) != 2:
            return False
    return False


@lru_cache(64)  # most files have the tables of T.81, annex K
def _codes(segment: bytes) -> frozenset[int]:
    """The Huffman tables that a segment defines; none if one is not well formed."""
    found: set[int] = set()
    at = tables = 0
    while at < len(segment):
        tables += 1
        which, counts = segment[at], segment[at + 1 : at + 17]
        total = sum(counts)
        symbols = segment[at + 17 : at + 17 + total]
        if (
            tables > _MOST_TABLES
            or len(counts) < 16
            or not 0 < total <= 256
            or len(symbols) < total
            or which & ~_AC > 3
        ):
            return frozenset()
        # Kraft's inequality: there are prefix codes with so many words of 1, 2, ..., 16 bits.
        if sum(map(mul, counts, _SHARES)) > _ALL or (which < _AC and max(symbols) > _MOST_DC):
            return frozenset()
        found.add(which)
        at += 17 + total
    return frozenset(found)


@lru_cache(64)  # most files have one of a few qualities
def _quantizers(segment: bytes) -> frozenset[int]:
    """The numbers of the quantisation tables that a segment defines; none if one is not well formed."""
    found: set[int] = set()
    at = 0
    for _ in range(_MOST_TABLES + 1):
        if at == len(segment):
            return frozenset(found)
        if at > len(segment):
            return frozenset()
        deep, number = segment[at] >> 4, segment[at] & 15
        at += 1 + (128 if deep else 64)
        if deep > 1 or number > 3:
            return frozenset()
        found.add(number)
    return frozenset()


@lru_cache(64)  # most files have one of a few kinds of sampling
def _needs(components: bytes, scan: bytes, progressive: bool) -> tuple[frozenset[int], frozenset[int]] | None:
    """The Huffman and the quantisation tables that a scan needs, by the components of its frame, their number before.

    None if the scan or a component is invalid.
    """
    of_frame = [components[at : at + 3] for at in range(1, len(components), 3)]
    names = {name for name, *_ in of_frame}
    count = scan[0] if scan else 0
    if not 0 < count <= len(names) or len(scan) != 4 + 2 * count:
        return None
    if len(components) != 1 + 3 * components[0] or len(names) != components[0]:
        return None
    factors = {name: (sampling >> 4, sampling & 15) for name, sampling, _ in of_frame}
    if not _divide_the_largest(list(factors.values())):
        return None
    chosen = scan[1 : 1 + 2 * count : 2]
    if len(set(chosen)) != count or not names.issuperset(chosen):
        return None
    if count > 1 and sum(across * down for across, down in (factors[name] for name in chosen)) > _MOST_BLOCKS:
        return None
    first, last, bits = scan[1 + 2 * count :]
    # The means of blocks, or later coefficients of one component, of which no bits are known yet (T.81, G.1.1.1.1).
    sound = (
        (first <= last <= 63 and bits <= 13 and (last == 0 or (first > 0 and count == 1)))
        if progressive
        else ((first, last, bits) == (0, 63, 0))
    )
    if not sound:
        return None
    codes: set[int] = set()
    for tables in scan[2 : 2 + 2 * count : 2]:
        if not progressive or first == 0:
            codes.add(tables >> 4)
        if not progressive or last > 0:
            codes.add(_AC | tables & 15)
    return frozenset(codes), frozenset(table for *_, table in of_frame)


def _divide_the_largest(factors: Sequence[tuple[int, int]]) -> bool:
    """Whether sampling factors, across and down, are 1 to 4 and divide the largest, as libjpeg needs."""
    for side in zip(*factors, strict=True):
        if not all(0 < factor < 5 and max(side) % factor == 0 for factor in side):
            return False
    return True
