"""Bytes of records, Examples and headers of archives, put together by hand."""

from __future__ import annotations

import struct

from gpupipe.extract.examples.wire import encode_varint
from gpupipe.extract.records.crc import masked_crc32c


def frame(record: bytes) -> bytes:
    """A record with its length and CRCs."""
    head = struct.pack("<Q", len(record))
    return head + struct.pack("<I", masked_crc32c(head)) + record + struct.pack("<I", masked_crc32c(record))


def field(number: int, data: bytes) -> bytes:
    """A field that holds bytes."""
    return encode_varint(number << 3 | 2) + encode_varint(len(data)) + data


def entry(name: bytes, feature: bytes) -> bytes:
    """An entry of the map of features."""
    return field(1, field(1, name) + field(2, feature))


def header_block(name: bytes, kind: bytes, size: int, *more: tuple[int, bytes]) -> bytes:
    """A header of the fields that matter; `archive_of` adds the checksum."""
    fields = ((0, name), (124, b"%011o\0" % size), (156, kind), (257, b"ustar\0"), *more)
    return bytes((len(fields),)) + b"".join(struct.pack("<HB", place, len(data)) + data for place, data in fields)
