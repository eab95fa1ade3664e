"""exif: the orientation in an EXIF block.

The block is a small TIFF file. A damaged one is ignored, as in Pillow: a photograph is not lost over it.
"""

from __future__ import annotations

import struct

__all__ = ["NORMAL", "orientation_of", "segment_of"]

NORMAL = 1


_ORIENTATION = 0x0112


_SHORT = 3


_MOST_ENTRIES = 512


def orientation_of(exif: bytes) -> int:
    """Return the orientation 1..8 of an EXIF block (without its "Exif" prefix), 1 if it has none."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4])
    if order is None:
        return NORMAL
    try:
        (offset,) = struct.unpack_from(f"{order}I", exif, 4)
        (count,) = struct.unpack_from(f"{order}H", exif, offset)
        for k in range(min(count, _MOST_ENTRIES)):
            tag, kind, _, value = struct.unpack_from(f"{order}HHIH", exif, offset + 2 + 12 * k)
            if tag == _ORIENTATION:
                return value if kind == _SHORT and 1 <= value <= 8 else NORMAL
    except struct.error:  # an offset or a count that points outside the block
        return NORMAL
    return NORMAL


def segment_of(orientation: int) -> bytes:
    """Make a JPEG segment whose EXIF block holds an orientation and nothing else."""
    block = struct.pack(">4sIHHHIHHI", b"MM\0*", 8, 1, _ORIENTATION, _SHORT, 1, orientation, 0, 0)
    return struct.pack(">HH6s", 0xFFE1, 8 + len(block), b"Exif\0\0") + block
