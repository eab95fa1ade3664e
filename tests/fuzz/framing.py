"""Fuzz target: the record framing, on one window of a stream.

The first three bytes say how: flags, which headers and which payloads keep a wrong CRC. The others are the window.
"""

from __future__ import annotations

from gpupipe.errors import DataError, RecordError
from gpupipe.extract.records.crc import masked_crc32c
from gpupipe.extract.records.framing import HEADER, Framer, Item, find_header, seek_header, sniff
from tests.fuzz.sealing import sealed

RAW, UNCHECKED, MORE_FOLLOWS, IN_TWO = 1, 2, 4, 8


def one(data: bytes, thorough: bool = True) -> None:
    """Cut one window into records, search behind damage; if `thorough`, compare both with the model."""
    if len(data) < 3:
        return
    flags, keep_headers, keep_payloads = data[0], data[1], data[2]
    window = data[3:] if flags & RAW else sealed(data[3:], keep_headers, keep_payloads)
    check = not flags & UNCHECKED
    base = flags >> 4
    limit = base + len(window) + (1000 if flags & MORE_FOLLOWS else 0)
    view = memoryview(window)
    framer = Framer("a", check_crc=check, first=0 if base == 0 else None)
    out: list[Item] = []

    if flags & IN_TWO:
        half = len(window) // 2
        at, _ = framer.cut(view[:half], base, limit, out)
        assert at <= half
        at, want = framer.cut(view, base, limit, out, at)
    else:
        at, want = framer.cut(view, base, limit, out)

    assert framer.index == len(out)
    expected: list[tuple[int, bytes | None]] = []
    if thorough:
        expected, end, need = cut_slowly(window, base, limit, check)
        assert (at, want) == (end, need)
        assert len(out) == len(expected)
    for (offset, item), (place, payload) in zip(out, expected, strict=thorough):
        assert offset == place
        if payload is None:
            assert isinstance(item, RecordError), item
            assert (item.file, item.offset, item.stage) == ("a", offset, "read")
        else:
            assert not isinstance(item, DataError), item
            assert item.tobytes() == payload
    left = len(window) - at
    if want == 0:
        searched(window, base, limit, at, framer, thorough)
    elif want < 0:
        told(framer.truncated(base + at, left, window[at:]), base + at)
    elif left:
        assert want > left or left < HEADER
        told(framer.truncated(base + at, left, window[at:], "at most "), base + at)


def cut_slowly(window: bytes, base: int, limit: int, check: bool) -> tuple[list[tuple[int, bytes | None]], int, int]:
    """What `Framer.cut` answers, with None for a damaged payload."""
    out: list[tuple[int, bytes | None]] = []
    at = 0
    while True:
        header = window[at : at + 12]
        if len(header) < 12:
            return out, at, 12
        if masked_crc32c(header[:8]) != int.from_bytes(header[8:], "little"):
            return out, at, 0
        length = int.from_bytes(header[:8], "little")
        if base + at + length + 16 > limit:
            return out, at, -1
        if at + length + 16 > len(window):
            return out, at, length + 16
        payload = window[at + 12 : at + 12 + length]
        crc = int.from_bytes(window[at + 12 + length : at + 16 + length], "little")
        out.append((base + at, payload if not check or masked_crc32c(payload) == crc else None))
        at += length + 16


def find_slowly(window: bytes, base: int, limit: int, start: int) -> int | None:
    """What `find_header` answers: lengths of 2**40 and more are no candidates."""
    at = window.find(b"\0\0\0", start + 5) - 5
    while start <= at <= len(window) - 12:
        length = int.from_bytes(window[at : at + 8], "little")
        crc = int.from_bytes(window[at + 8 : at + 12], "little")
        if base + at + length + 16 <= limit and masked_crc32c(window[at : at + 8]) == crc:
            return at
        at = window.find(b"\0\0\0", at + 6) - 5
    return None


def searched(window: bytes, base: int, limit: int, at: int, framer: Framer, thorough: bool) -> None:
    """Find the way back behind damage, in memory and by reading."""
    if limit == len(window):
        found, unread = seek_header(lambda offset, n: window[offset : offset + n], at, at + 1, limit)
        assert unread == 0
    else:
        found = find_header(memoryview(window), base, limit, at + 1)
    if thorough:
        assert found == find_slowly(window, base, limit, at + 1)
    head = window[at : at + HEADER]
    error = framer.damaged(base + at, head, None if found is None else found - at)
    told(error, base + at)
    assert (sniff(head) is None) or base + at or "a TFRecord file is needed" in error.reason


def told(error: DataError, offset: int) -> None:
    """An error has its place, and a text of bounded length."""
    assert (error.file, error.offset, error.stage) == ("a", offset, "read")
    assert len(str(error)) < 300
