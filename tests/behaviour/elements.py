"""elements: where an element is in the bytes of a file of elements."""

from __future__ import annotations

import struct

from gpupipe.serial.elements_file import MAGIC, token_of


def start_of(data: bytes | bytearray, number: int) -> int:
    """Return where the record of an element starts.

    The token of the file is part of what is searched: without it, the last byte of another element's token and its
    number can look like this number.
    """
    (size,) = struct.unpack_from("<Q", data)
    token = token_of(bytes(data[12 + len(MAGIC) + 4 : 12 + size]))
    return data.index(b"E" + token + struct.pack("<Q", number)) - 12
