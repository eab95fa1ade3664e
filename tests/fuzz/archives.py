"""Fuzz target: samples of tar archives, plain and compressed, in every way they are read.

The first three bytes say how: flags, which headers keep a wrong checksum, the size of blocks that are read. The rest
describes blocks of 512 bytes, as most of an archive is zeros: a number of parts, and for each its place, its length and
its bytes.
"""

from __future__ import annotations

import contextlib
import gzip
import struct
from typing import Any

from gpupipe.errors import DataError, ParseError, RecordError
from gpupipe.extract.shards import members
from gpupipe.extract.shards.header import BLOCK
from gpupipe.extract.shards.samples import SampleReader
from tests.fuzz.bounds import lowered
from tests.fuzz.files import Memory

CUT, LOW, BROKEN = (1 << k for k in range(3))
COLUMNS = ((b"a", b"b"), (b"__key__",))


def one(data: bytes, thorough: bool = True) -> None:
    """Read an archive: bounded in number, in order, inside of it; the same when compressed, if `thorough`."""
    if len(data) < 3:
        return
    flags, kept, shape = data[:3]
    archive = archive_of(data[3:], kept)
    if flags & CUT:
        archive = archive[: len(archive) * shape >> 8]
    broken = len(archive) * shape >> 8 if flags & BROKEN else None
    few = {"SEARCHED": 1024, "_SEARCH": 512, "_MOST_EXTENDED": 64} if flags & LOW else {}
    with lowered(members, **few) if few else contextlib.nullcontext():
        found = items(archive, 64 << (shape & 7), broken)
        checked(found, archive)
        if thorough and broken is None and not flags & LOW:  # how far a stream is searched depends on its unknown end
            packed = items(gzip.compress(archive, 1, mtime=0), 512, None, "GZIP")
            if all(type(item) is tuple for _, item in found):  # else lengths are believed that exceed the archive
                assert packed == found


def items(archive: bytes, block: int, broken: int | None, compression: Any = "") -> list[tuple[int, Any]]:
    """What a reader gives: offsets with payload and key, or the reason why there is none."""
    reader = SampleReader("a", columns=COLUMNS, compression=compression, block=block, storage=Memory(archive, broken))
    out: list[tuple[int, Any]] = []
    for piece in reader.blocks():
        for offset, item in piece:
            if isinstance(item, DataError):
                assert isinstance(item, RecordError | ParseError) and (item.file, item.stage) == ("a", "read"), item
                assert len(item.reason) < 1000
                out.append((offset, item.reason))
            else:
                out.append((offset, tuple(bytes(column) for column in item)))
    return out


def checked(found: list[tuple[int, Any]], archive: bytes) -> None:
    """Each item starts at a block of the archive, after the one before it; payloads are bytes of the archive."""
    offsets = [offset for offset, _ in found]
    assert offsets == sorted(offsets)
    assert len(found) <= 2 * (len(archive) // BLOCK + 2)
    for offset, item in found:
        assert 0 <= offset <= len(archive) and offset % BLOCK == 0
        assert isinstance(item, str) or item[0] in archive[offset + BLOCK :]


def archive_of(described: bytes, kept: int) -> bytes:
    """The archive of a description; header k keeps the checksum that it has if bit k % 8 of `kept` is set."""
    out = bytearray()
    at = 0
    while at < len(described) and len(out) < 64 * BLOCK:
        block = bytearray(BLOCK)
        parts, at = described[at] & 7, at + 1
        for _ in range(parts):
            if at + 3 > len(described):
                break
            place, size = struct.unpack_from("<HB", described, at)
            part = described[at + 3 : at + 3 + size]
            place %= BLOCK
            block[place : place + len(part)] = part
            at += 3 + size
        del block[BLOCK:]
        if any(block) and not kept >> (len(out) // BLOCK & 7) & 1:
            block[148:156] = b" " * 8
            block[148:156] = b"%06o\0 " % sum(block)
        out += block
    return bytes(out)
