"""crc: the masked CRC-32C (Castagnoli) that guards the length and the payload of every TFRecord.

A small C library computes it in hardware: 4 us for a record of 110 KB.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec

__all__ = ["HELD", "crc32c", "footer_at", "header_at", "mask", "masked_crc32c"]

header_at = struct.Struct("<QI").unpack_from
"""Read the length of a record's payload and the masked CRC of these 8 bytes."""


footer_at = struct.Struct("<I").unpack_from
"""Read the masked CRC of a payload."""


# Up to this many bytes the GIL is held, for 50 us at most. If another thread runs Python, getting it back takes up to
# 5 ms: a reader that releases it for every record reaches 5-7 thousand records/s instead of 9.
HELD = 1 << 20


def _of_the_library() -> Callable[..., int]:
    """The function of crc32c's extension, without the package around it if that can be.

    The package asks for its own version when it is imported, for which Python imports `email` and others: that takes
    40 ms, a tenth of a first batch. No module of a package can be imported without the package, so its extension is
    found and loaded by its own spec. google-crc32c is no way out: it refuses buffers that can be written to and never
    releases the GIL. In a version of another layout the package is imported, and a test says so.
    """
    package = find_spec("crc32c") if "crc32c" not in sys.modules else None
    places = None if package is None else package.submodule_search_locations
    found = None if places is None else PathFinder.find_spec("crc32c._crc32c", list(places))
    if found is not None and found.loader is not None:
        module = module_from_spec(found)
        found.loader.exec_module(module)
        function: Callable[..., int] | None = getattr(module, "crc32c", None)
        if function is not None:
            return function
    import crc32c

    whole: Callable[..., int] = crc32c.crc32c
    return whole


crc32c = _of_the_library()


_DELTA = 0xA282EAD8


_WORD = 0xFFFFFFFF


def mask(crc: int) -> int:
    """Rotate right by 15 bits and add a constant, as TensorFlow stores a CRC.

    The CRC of data that contains its own CRC is degenerate; masking avoids that.
    """
    return ((crc >> 15 | crc << 17) + _DELTA) & _WORD


def masked_crc32c(data: bytes | bytearray | memoryview) -> int:
    """Compute the masked CRC-32C of `data`, 0..2**32-1. The GIL is released above 1 MB."""
    return mask(crc32c(data, 0, len(data) > HELD))
