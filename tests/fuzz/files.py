"""Fuzz target: whole files of records, plain and compressed, through every way they are read.

The first four bytes say how: flags, which headers and which payloads keep a wrong CRC, and the size of blocks, whether
bounds are low and how often the rest is repeated. The rest is the file, or what is compressed.
"""

from __future__ import annotations

import contextlib
import zlib
from typing import Any

from gpupipe.errors import DataError, RecordError
from gpupipe.extract.records import tfrecord
from gpupipe.extract.records.tfrecord import RecordReader
from gpupipe.extract.records.walk import Bad, Good, walk_headers
from tests.fuzz.bounds import lowered
from tests.fuzz.framing import cut_slowly, find_slowly
from tests.fuzz.sealing import sealed

RAW, UNCHECKED, GZIP, ZLIB, INSIDE, CUT, LATER, FAULTY = (1 << k for k in range(8))


LOW = 8


class Memory:
    """One file that is in memory; whatever is outside of it is an error, as on a disk."""

    random_reads = True
    reads_ahead = False

    def __init__(self, data: bytes, broken: int | None = None, passing: bool = False) -> None:
        self.data = data
        self.passing = passing
        self.broken = len(data) if broken is None else broken  # nothing behind this can be read

    def size(self, name: str) -> tuple[int, str]:
        return len(self.data), "tag"

    def read(self, name: str, offset: int, n: int, tag: str | None = None) -> bytes:
        assert tag == "tag" and offset >= 0 and n >= 0
        if n and offset + n > self.broken:
            error = RecordError("cannot be read", file=name, offset=None if offset & 1 else offset, stage="read")
            error.passing = self.passing
            raise error
        return self.data[offset : offset + n]

    def readinto(self, name: str, offset: int, out: memoryview, tag: str | None = None) -> None:
        out[:] = self.read(name, offset, len(out), tag)

    def ahead(self, name: str, offset: int, n: int) -> bool:
        return False

    def confirm(self, name: str, tag: str) -> None:
        assert tag == "tag"


class Network(Memory):
    """The same over a network that changes a byte of what it is asked for the first time."""

    random_reads = False
    _sent = 0

    def change(self, offset: int, out: bytearray | memoryview) -> None:
        if offset >= self._sent and len(out):
            self._sent = offset + len(out)
            out[len(out) // 2] ^= 0xA5

    def readinto(self, name: str, offset: int, out: memoryview, tag: str | None = None) -> None:
        super().readinto(name, offset, out, tag)
        self.change(offset, out)


class Once(Network):
    """The same, which answers nothing twice."""

    def readinto(self, name: str, offset: int, out: memoryview, tag: str | None = None) -> None:
        if offset < self._sent:
            raise RecordError("cannot be read", file=name, offset=offset, stage="read")
        super().readinto(name, offset, out, tag)


class Wire(Network):
    """The same for what asks for compressed bytes."""

    def read(self, name: str, offset: int, n: int, tag: str | None = None) -> bytes:
        data = bytearray(super().read(name, offset, n, tag))
        self.change(offset, data)
        return bytes(data)


class Worn(Memory):
    """The same on a disk that gives no block, only what is smaller."""

    def readinto(self, name: str, offset: int, out: memoryview, tag: str | None = None) -> None:
        error = RecordError("cannot be read", file=name, offset=offset, stage="read")
        error.passing = True
        raise error


def one(data: bytes, thorough: bool = True) -> None:
    """Read a file; compare the readers with each other, and with the model if `thorough`."""
    if len(data) < 4:
        return
    flags, keep_headers, keep_payloads, shape = data[:4]
    body = data[4:] * (1 << (shape >> 4 & 3))
    block = 64 << (shape & 7)
    check = not flags & UNCHECKED
    if not flags & RAW:
        body = sealed(body, keep_headers, keep_payloads)
    compression = "GZIP" if flags & GZIP else "ZLIB" if flags & ZLIB else ""
    stream: bytes | None = body
    if compression:
        if flags & INSIDE:
            stream = inflated(body, compression)
        else:
            packer = zlib.compressobj(1, wbits=31 if compression == "GZIP" else 15)
            body = packer.compress(body) + packer.flush()
            if flags & CUT:
                body, stream = body[: len(body) * keep_headers >> 8], None
    broken = len(body) * keep_payloads >> 8 if flags & FAULTY else None
    storage = Memory(body, broken, bool(keep_headers & 2))
    start = record_start(stream) if flags & LATER and stream is not None else 0
    if start and compression and keep_headers & 1:
        start += len(stream or b"")  # no record begins there
    low = bool(shape & LOW)

    def read(storage: Memory, start: int) -> list[Any]:
        reader = RecordReader("a", compression=compression, check_crc=check, block=block, start=start, storage=storage)
        return [item for items in reader.blocks() for item in items]

    with lowered(tfrecord, longest_record=lambda size: 40, _MOST=8) if low else contextlib.nullcontext():
        items = read(storage, start)

    consistent(items, None if compression and stream is None else len(stream or b""))
    found = plain(items)
    if compression:
        consistent(read(Wire(body), 0), None)
        if stream is not None and broken is None and not low and thorough and start <= len(stream):
            # Behind a damaged length more is believed of a stream whose end is not known yet.
            expected = read_slowly(stream, start, check, search=False)
            assert found[: len(expected)] == expected
        return
    if broken is None and not low:
        # What a network changed in a good header is not found behind one that is damaged in the file, too.
        sound = not any(isinstance(x, DataError) and "the length of a record" in x.reason for _, x in items)
        for other in (Worn(body), Network(body), Once(body)):
            again = read(other, start)
            consistent(again, len(body))
            if not isinstance(other, Once) and (not isinstance(other, Network) or (check and sound)):
                assert plain(again) == found
    assert len(items) <= 2 * (len(body) // 16) + 1  # between two records, and around them, one error
    if broken is None and thorough:
        assert found == read_slowly(body, start, check)
    walked = walk(storage, start)
    if broken is None:
        assert [at for at, _ in walked] == [at for at, _ in items]
        for (_, length), (_, item) in zip(walked, items, strict=True):
            assert isinstance(item, DataError) or length == len(item)


def plain(items: list[Any]) -> list[tuple[int, bytes | None]]:
    """Offsets and payloads, with None for what is damaged."""
    return [(at, None if isinstance(item, DataError) else bytes(item)) for at, item in items]


def walk(storage: Memory, start: int) -> list[tuple[int, int | None]]:
    """Offsets and lengths of `walk_headers`, with None for what is damaged."""
    out: list[tuple[int, int | None]] = []
    for part in walk_headers("a", start=start, storage=storage):
        if isinstance(part, Good):
            stops = [*part.offsets[1:], part.end]
            assert part.offsets and part.end <= len(storage.data)
            out += [(at, stop - at - 16) for at, stop in zip(part.offsets, stops, strict=True)]
        else:
            assert isinstance(part, Bad) and part.error.offset == part.offset
            out.append((part.offset, None))
    return out


def read_slowly(stream: bytes, start: int, check: bool, search: bool = True) -> list[tuple[int, bytes | None]]:
    """Offsets and payloads of a stream, with None for what is damaged; `search` goes on behind a damaged length."""
    out: list[tuple[int, bytes | None]] = []
    at = start
    while at < len(stream):
        more, end, want = cut_slowly(stream[at:], 0, len(stream) - at, check)
        out += [(at + place, payload) for place, payload in more]
        at += end
        if at < len(stream):
            out.append((at, None))
            found = None
            if search and want == 0 and not (at == 0 and foreign(stream)):
                found = find_slowly(stream, 0, len(stream), at + 1)
            at = len(stream) if found is None else found
    return out


def foreign(stream: bytes) -> bool:
    """Whether a file begins like one of another format."""
    begins = ("ffd8ff", "89504e470d0a", "1f8b", "50415231", "504b0304", "4152524f5731", "7801", "785e", "789c", "78da")
    return any(stream.startswith(bytes.fromhex(magic)) for magic in begins)


def record_start(stream: bytes) -> int:
    """Where the second record begins, if there is one."""
    length = int.from_bytes(stream[:8], "little") + 16
    return length if length <= len(stream) else 0


def inflated(body: bytes, compression: str) -> bytes | None:
    """What a compressed file holds if it is whole and of moderate size; None if not."""
    out = b""
    while body:
        stream = zlib.decompressobj(31 if compression == "GZIP" else 15)
        try:
            out += stream.decompress(body, 1 << 16)
        except zlib.error:
            return None
        body = stream.unused_data
        if compression == "GZIP":
            body = body.lstrip(b"\0")  # padding, as gzip sees it
        if not stream.eof or (body and compression == "ZLIB"):
            return None
    return out


def consistent(items: list[Any], size: int | None) -> None:
    """Offsets ascend, payloads lie inside the stream and do not overlap, errors have their place."""
    last = 0
    for at, item in items:
        assert at >= last
        if isinstance(item, DataError):
            assert (item.file, item.offset, item.stage) == ("a", at, "read"), repr(item)
            assert len(str(item)) < 400
            last = at
        else:
            last = at + 16 + len(item)
            assert size is None or last <= size
