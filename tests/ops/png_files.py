"""PNGs as Pillow cannot write them: several channels of 16 bits, every filter, interlaced, few bits of gray."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}
PASSES = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I4s", len(data), kind) + data + struct.pack(">I", zlib.crc32(kind + data))


def png(image: Array, *, interlaced: bool = False, extra: bytes = b"") -> bytes:
    """A PNG of uint16[H,W,C] or uint8[H,W,C], whose rows have all five filters in turn, with more chunks."""
    height, width, channels = image.shape
    bits = 8 * image.dtype.itemsize
    head = struct.pack(">IIBBBBB", width, height, bits, COLOURS[channels], 0, 0, interlaced)
    parts = [image[y::down, x::right] for y, x, down, right in (PASSES if interlaced else ((0, 0, 1, 1),))]
    rows = b"".join(filtered(part) for part in parts if part.size)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )


def filtered(image: Array) -> bytes:
    """The rows of an image, each after the number of its filter."""
    size = image.dtype.itemsize * image.shape[2]
    rows = np.frombuffer(image.astype(f">u{image.dtype.itemsize}").tobytes(), np.uint8).reshape(len(image), -1)
    out, above = [], np.zeros(rows.shape[1], int)
    for y, row in enumerate(rows.astype(int)):
        left, corner = (np.concatenate([np.zeros(size, int), line])[: len(row)] for line in (row, above))
        p = left + above - corner
        near = np.stack([abs(p - left), abs(p - above), abs(p - corner)]).argmin(axis=0)
        paeth = np.choose(near, [left, above, corner])
        guess = (0 * row, left, above, (left + above) // 2, paeth)[y % 5]
        out.append(bytes([y % 5]) + ((row - guess) % 256).astype(np.uint8).tobytes())
        above = row
    return b"".join(out)


def packed_gray(values: Array, bits: int) -> bytes:
    """A gray PNG of fewer than 8 bits, from uint8[H,W] of values below ``2 ** bits``."""
    height, width = values.shape
    head = struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0)
    each = np.unpackbits(values[:, :, None], axis=2)[:, :, 8 - bits :].reshape(height, -1)
    rows = b"".join(b"\0" + np.packbits(row).tobytes() for row in each)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
