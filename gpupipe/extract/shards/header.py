"""header: the blocks of 512 bytes that describe the members of a tar archive, and what extends them.

POSIX (ustar, pax), GNU and the tar of Unix V7 write the same fields. A header is verified by its checksum, a sum of
bytes; payloads have none.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from zlib import adler32

import numpy as np

__all__ = [
    "BLOCK",
    "DIRECTORY",
    "ENDS",
    "EXTENDED",
    "FIELDS",
    "REFUSED",
    "SPARSE",
    "Header",
    "find_header",
    "long_name",
    "pax",
    "quick_size",
    "read_header",
]

BLOCK = 512
"""Bytes of a header; a payload is padded to a multiple of it."""


EXTENDED = b"LKxXg"
"""Types of headers whose payload describes the next member: its name (L), the target of a link (K), pax records."""


DIRECTORY = b"5"


REFUSED = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a FIFO",
    b"S": "a sparse file",
    b"M": "the continuation of a file in another archive",
}
"""Types of members that have no bytes to read, or not all of them, in words."""


ENDS = b"12346"
"""Types of members without a payload, whatever their size says (as Python's tarfile takes them)."""


FIELDS = struct.Struct("100s24x12s12x8sc100x6s82x155s")
"""Name, size, checksum, type, magic, prefix."""


SPARSE = b"GNU.sparse."
"""How the names of the pax records of a sparse file start."""


_NAMES = (b"path", b"size", SPARSE + b"name")


_PRIME = 65521  # of adler32


class Header(NamedTuple):
    """One header.

    Attributes:
        name: of the member.
        size: bytes of its payload.
        type: one character.
    """

    name: bytes
    size: int
    type: bytes


def read_header(view: memoryview) -> Header | None:
    """Read a block of 512 bytes as a header; None if it is not one: its checksum or a number in it is wrong."""
    name, size, stored, kind, magic, prefix = FIELDS.unpack_from(view)
    # The low half of adler32 is 1 + the sum of all bytes modulo 65521: 0.2 us, where `sum` takes 3.
    total = (adler32(view) & 0xFFFF) - 1 - sum(stored)
    try:
        # The sum counts the eight bytes of the checksum as spaces.
        if (int(stored.rstrip(b" \0"), 8) - 8 * 32 - total) % _PRIME and not _as_signed(view, stored):
            return None
        length = int(size[:11], 8) if size[11] == 0 and 48 <= size[0] <= 55 else _number(size)
    except ValueError:
        return None
    if length < 0:
        return None
    name = name.partition(b"\0")[0]
    if magic == b"ustar\0" and prefix[0]:
        name = prefix.partition(b"\0")[0] + b"/" + name
    if kind == b"\0" and name.endswith(b"/"):  # V7 has no type for it
        kind = DIRECTORY
    return Header(name, length, kind)


def quick_size(fields: tuple[bytes, ...], view: memoryview) -> int:
    """Bytes of the payload of a regular file whose header is written as usual; -1 for all others, see `read_header`."""
    _, size, stored, kind, _, prefix = fields
    if kind != b"0" or prefix[0] or size[11] or stored[6]:
        return -1
    try:
        if (int(stored[:6], 8) - 8 * 32 - (adler32(view) & 0xFFFF) + 1 + sum(stored)) % _PRIME:
            return -1
        return int(size[:11], 8)
    except ValueError:
        return -1


def _as_signed(view: memoryview, stored: bytes) -> bool:
    """Whether the checksum is right where bytes count from -128 to 127: some old tars summed characters."""
    total = int(np.frombuffer(view, np.int8).sum(dtype=np.int64)) - int(np.frombuffer(stored, np.int8).sum())
    return int(stored.rstrip(b" \0"), 8) == total + 8 * 32


def _number(field: bytes) -> int:
    """A number in octal digits, or in base 256 where the first bit is set, as GNU tar writes large ones.

    Raises:
        ValueError: it is neither.
    """
    if field[0] & 0x80:
        value = int.from_bytes(field, "big")
        return value - (1 << 8 * len(field)) if field[0] & 0x40 else value & ~(0x80 << 8 * (len(field) - 1))
    digits = field.partition(b"\0")[0].strip(b" ")
    return int(digits, 8) if digits else 0


def find_header(view: memoryview, base: int, limit: int) -> int | None:
    """Find the first block that is a header.

    Args:
        view: a part of an archive, from the start of a block.
        base: its offset in the archive.
        limit: upper bound of the archive's length; no payload exceeds it.

    Returns:
        Its offset in `view`, None if there is none.
    """
    blocks = np.frombuffer(view, np.uint8, len(view) - len(view) % BLOCK).reshape(-1, BLOCK)
    digits = blocks[:, 148:154]
    octal = (((digits >= 48) & (digits <= 55)) | (digits == 32) | (digits == 0)).all(1)
    for i in np.flatnonzero(octal & (blocks[:, 0] != 0)).tolist():
        at = i * BLOCK
        header = read_header(view[at : at + BLOCK])
        if header is not None and (header.type in ENDS or base + at + BLOCK + header.size <= limit):
            return at
    return None


def long_name(data: bytes) -> bytes:
    """The name in the payload of a GNU header for a long name."""
    return data.partition(b"\0")[0]


def pax(data: bytes) -> dict[bytes, bytes]:
    """The records ``length key=value`` of a pax header for the name, the length and the holes of a member.

    Raises:
        ValueError: a record is malformed.
    """
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(data) and data[at]:  # zeros may pad it
        space = data.find(b" ", at, at + 12)
        if not data[at:space].isdigit():
            raise ValueError("a record does not start with its length")
        end = at + int(data[at:space])
        key, equals, value = data[space + 1 : end - 1].partition(b"=")
        if not space < end <= len(data) or data[end - 1] != 10 or not equals:
            raise ValueError("a record is not 'length key=value' and a newline")
        if key in (b"path", b"size") or key.startswith(SPARSE):
            found[key if key in _NAMES else SPARSE] = value
        at = end
    return found
