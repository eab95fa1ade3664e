"""exif: the orientation in an EXIF block.

The block is a small TIFF file. A damaged one is ignored, as in Pillow: a photograph is not lost over it.
"""

from __future__ import annotations

import re
import struct

__all__ = ["NORMAL", "orientation_of", "segment_of"]

NORMAL = 1


_ORIENTATION = 0x0112


_SHORT = 3


_FORMATS = {_SHORT: "H", 4: "I", 8: "h", 9: "i"}
"""By the type of a value in TIFF, how `struct` reads it: integers of 16 and 32 bits, which writers use for it."""


_MOST_ENTRIES = 512


_IN_XMP = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')


def orientation_of(exif: bytes, xmp: bytes = b"") -> int:
    """Return the orientation 1..8 of an image, 1 if it has none.

    Args:
        exif: its EXIF block, without the "Exif" prefix.
        xmp: its XMP packet, which counts where the EXIF block has no orientation, as in Pillow.
    """
    found = _stored(exif)
    if found is None and (match := _IN_XMP.search(xmp)) is not None:
        found = int(match[1])
    return found if found is not None and 1 <= found <= 8 else NORMAL


def _stored(exif: bytes) -> int | None:
    """The value of the tag; None if the block has none, or is damaged."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4])
    if order is None:
        return None
    try:
        (offset,) = struct.unpack_from(f"{order}I", exif, 4)
        (count,) = struct.unpack_from(f"{order}H", exif, offset)
        for k in range(min(count, _MOST_ENTRIES)):
            at = offset + 2 + 12 * k
            tag, kind = struct.unpack_from(f"{order}HH", exif, at)
            if tag == _ORIENTATION:
                form = _FORMATS.get(kind)
                return NORMAL if form is None else int(struct.unpack_from(f"{order}{form}", exif, at + 8)[0])
    except struct.error:  # an offset or a count that points outside the block
        return None
    return None


def segment_of(orientation: int) -> bytes:
    """Make a JPEG segment whose EXIF block holds an orientation and nothing else."""
    block = struct.pack(">4sIHHHIHHI", b"MM\0*", 8, 1, _ORIENTATION, _SHORT, 1, orientation, 0, 0)
    return struct.pack(">HH6s", 0xFFE1, 8 + len(block), b"Exif\0\0") + block
