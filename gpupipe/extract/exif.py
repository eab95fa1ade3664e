"""exif: the orientation an EXIF block asks for.

The block is a small TIFF file. One that is damaged asks for nothing, as in Pillow: a photograph is not lost over it.
"""

from __future__ import annotations

import struct

__all__ = ["NORMAL", "is_plain", "orientation_of", "segment_of"]

NORMAL = 1
_ORIENTATION = 0x0112
_SHORT = 3
_MOST_ENTRIES = 512


def orientation_of(exif: bytes) -> int:
    """Give the orientation 1..8 of an EXIF block (without its "Exif" prefix); 1 if there is none."""
    return _read(exif)[0]


def is_plain(exif: bytes) -> bool:
    """Whether an EXIF block leaves no doubt about its orientation: its entries are whole, and one at most names it."""
    return _read(exif)[1]


def segment_of(orientation: int) -> bytes:
    """The segment of a JPEG whose EXIF block asks for an orientation and holds nothing else."""
    block = struct.pack(">4sIHHHIHHI", b"MM\0*", 8, 1, _ORIENTATION, _SHORT, 1, orientation, 0, 0)
    return struct.pack(">HH6s", 0xFFE1, 8 + len(block), b"Exif\0\0") + block


def _read(exif: bytes) -> tuple[int, bool]:
    """The orientation, and whether there is no doubt about it."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4])
    if order is None:
        return NORMAL, False
    found: list[tuple[int, int, int]] = []
    plain = True
    try:
        (at,) = struct.unpack_from(f"{order}I", exif, 4)
        (count,) = struct.unpack_from(f"{order}H", exif, at)
        for k in range(min(count, _MOST_ENTRIES)):
            tag, kind, values, value = struct.unpack_from(f"{order}HHIH", exif, at + 2 + 12 * k)
            if tag == _ORIENTATION:
                found.append((kind, values, value))
        plain = count <= _MOST_ENTRIES and len(found) < 2 and at + 2 + 12 * count <= len(exif)
    except struct.error:  # an offset or a count that leads out of the block
        plain = False
    if not found:
        return NORMAL, plain
    kind, values, value = found[0]
    good = kind == _SHORT and 1 <= value <= 8
    return value if good else NORMAL, plain and good and values == 1
