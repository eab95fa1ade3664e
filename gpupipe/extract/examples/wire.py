"""wire: the part of protobuf's encoding that an Example needs, with every length checked against its container."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

__all__ = ["BYTES", "FIXED32", "VARINT", "WireError", "encode_varint", "fields", "varint", "varints"]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


_MASK = (1 << 64) - 1


_FEW = 32  # bytes that are read one by one


_PIECE = 64 << 10  # bytes that NumPy decodes at once


class WireError(ValueError):
    """The bytes are not valid protobuf. The caller adds the record and the feature."""


def varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """Read the number at `data[at:end]`; return it (0..2**64-1) and the offset after it."""
    if at + 2 < end:  # most have up to three bytes
        value = data[at]
        if value < 128:
            return value, at + 1
        second = data[at + 1]
        if second < 128:
            return value & 127 | second << 7, at + 2
        third = data[at + 2]
        if third < 128:
            return value & 127 | (second & 127) << 7 | third << 14, at + 3
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & _MASK, at
        shift += 7
        if shift > 63:
            raise WireError("a number is longer than 10 bytes")
    raise WireError("a number is truncated")


def fields(data: memoryview, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Iterate over the fields of the message `data[at:end]` as (number, wire type, start, end) of their values."""
    while at < end:
        tag, at = varint(data, at, end)
        number, kind = tag >> 3, tag & 7
        if not number:
            raise WireError("a field has the number 0")
        if kind == BYTES:
            length, at = varint(data, at, end)
        elif kind == VARINT:
            length = varint(data, at, end)[1] - at
        elif kind == FIXED32:
            length = 4
        elif kind == FIXED64:
            length = 8
        else:
            raise WireError(f"the wire type {kind} is unknown")
        if length > end - at:
            raise WireError(f"a field of {length} bytes is longer than the {end - at} that are left")
        yield number, kind, at, at + length
        at += length


def varints(data: memoryview) -> list[int] | NDArray[np.int64]:
    """Read consecutive varints as int64."""
    n = len(data)
    if n <= _FEW:
        out = []
        at = 0
        while at < n:
            value, at = varint(data, at, n)
            out.append(value - (1 << 64) if value >> 63 else value)
        return out
    raw = np.frombuffer(data, np.uint8)
    if raw[-1] > 127:
        raise WireError("a number is truncated")
    if n <= _PIECE:
        return _decoded(raw)
    values = np.empty(np.count_nonzero(raw < 128), np.int64)
    at = done = 0
    while at < n:
        stop = min(at + _PIECE, n)
        ends = np.flatnonzero(raw[max(at, stop - 10) : stop] < 128)  # a piece ends with a whole number
        if not len(ends):
            raise WireError("a number is longer than 10 bytes")
        stop -= min(stop - at, 10) - 1 - int(ends[-1])
        piece = _decoded(raw[at:stop])
        values[done : done + len(piece)] = piece
        at, done = stop, done + len(piece)
    return values


def _decoded(raw: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Decode numbers, the last one whole; takes 50 times their bytes of memory."""
    ends = np.flatnonzero(raw < 128)
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    longest = int(lengths.max())
    if longest > 10:
        raise WireError("a number is longer than 10 bytes")
    values = np.zeros(len(ends), np.uint64)
    for k in range(longest):  # byte k of all numbers that have one
        rows = np.flatnonzero(lengths > k)
        values[rows] |= (raw[starts[rows] + k] & 127).astype(np.uint64) << np.uint64(7 * k)
    return values.view(np.int64)


def encode_varint(value: int) -> bytes:
    """Write a number of -2**63..2**64-1; a negative one takes 10 bytes."""
    value &= _MASK
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
