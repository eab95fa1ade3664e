"""Streams of records made of any bytes: a fuzzer guesses no CRC, so they are put in, but for those to be left wrong."""

from __future__ import annotations

import struct

from gpupipe.extract.records.crc import masked_crc32c

_length = struct.Struct("<Q").unpack_from
_put = struct.Struct("<I").pack_into


def sealed(data: bytes, keep_headers: int, keep_payloads: int) -> bytes:
    """`data` with CRCs that fit where records are; record k keeps the one it has if bit k % 8 of the mask is set."""
    out = bytearray(data)
    view = memoryview(out)
    n, at, k = len(out), 0, 0
    while n - at >= 12:
        bit = 1 << (k & 7)
        if not keep_headers & bit:
            _put(out, at + 8, masked_crc32c(view[at : at + 8]))
        stop = at + 16 + _length(out, at)[0]
        if stop > n:
            break
        if not keep_payloads & bit:
            _put(out, stop - 4, masked_crc32c(view[at + 12 : stop - 4]))
        at = stop
        k += 1
    view.release()
    return bytes(out)
