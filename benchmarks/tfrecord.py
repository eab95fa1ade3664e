"""tfrecord: reading shards for contestants other than gpupipe, and writing them for the probes.

Independent of gpupipe on purpose: a contestant must not use the code it is compared with.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

__all__ = ["Entry", "entries", "example", "frames", "write_index", "write_record"]

_HEADER = 12  # u64 length, u32 checksum of it; the payload's checksum follows the payload


@dataclass(frozen=True, slots=True)
class Entry:
    """The location of the JPEG of one record, and its label."""

    file: str
    offset: int
    length: int
    label: int


def frames(path: str | Path) -> Iterator[tuple[int, int]]:
    """Yield (offset of the payload, its length) of each record, reading headers only.

    Raises:
        ValueError: if the file ends inside a record.
    """
    size = Path(path).stat().st_size
    with open(path, "rb", buffering=0) as file:
        at = 0
        while at < size:
            file.seek(at)
            header = file.read(8)
            length = int.from_bytes(header, "little")
            if len(header) < 8 or at + _HEADER + length + 4 > size:
                raise ValueError(
                    f"a benchmark needs whole shards, got {Path(path).name} truncated at byte {at}; make it again"
                )
            yield at + _HEADER, length
            at += _HEADER + length + 4


def write_index(path: str | Path, index: Path) -> None:
    """Write the index file DALI's reader needs: a line "offset size" per record, framing included."""
    lines = (f"{offset - _HEADER} {length + _HEADER + 4}\n" for offset, length in frames(path))
    index.write_text("".join(lines))


def entries(path: str | Path) -> Iterator[Entry]:
    """Yield the location of each record's "image/encoded", with its "image/class/label"."""
    with open(path, "rb") as file:
        for offset, length in frames(path):
            file.seek(offset)
            jpeg, label = _features(memoryview(file.read(length)))
            yield Entry(str(path), offset + jpeg.start, jpeg.stop - jpeg.start, label)


def example(jpeg: bytes, label: int) -> bytes:
    """Encode a tf.train.Example with the two features of the chain."""
    image = _field(1, _field(1, jpeg))  # Feature.bytes_list.value
    number = _field(3, _field(1, _varint(label)))  # Feature.int64_list.value, packed
    pairs = (b"image/encoded", image), (b"image/class/label", number)
    return _field(1, b"".join(_field(1, _field(1, key) + _field(2, value)) for key, value in pairs))


def write_record(file: BinaryIO, payload: bytes, *, damaged: bool = False) -> None:
    """Append one record; `damaged` gives it a wrong checksum."""
    header = struct.pack("<Q", len(payload))
    checksum = _masked(payload) ^ (0xFFFF if damaged else 0)
    file.write(header + struct.pack("<I", _masked(header)) + payload + struct.pack("<I", checksum))


def _features(record: memoryview) -> tuple[slice, int]:
    """Find the JPEG in a record and the label, -1 if there is none."""
    jpeg, label = slice(0, 0), -1
    _, at, end = _enter(record, 0)  # Example.features
    while at < end:
        _, entry, stop = _enter(record, at)
        _, start, key_end = _enter(record, entry)
        key = bytes(record[start:key_end])
        if key in (b"image/encoded", b"image/class/label"):
            _, feature, _ = _enter(record, key_end)
            _, values, _ = _enter(record, feature)
            if key == b"image/encoded":
                _, first, last = _enter(record, values)
                jpeg = slice(first, last)
            else:
                # A list of one number: packed (tag 10, length, value) or not (tag 8, value).
                packed = record[values] == 10
                label, _ = _read_varint(record, values + (2 if packed else 1))
        at = stop
    return jpeg, label


def _enter(data: memoryview, at: int) -> tuple[int, int, int]:
    """Read a length-delimited field's tag and length; return (field number, start, end)."""
    length, start = _read_varint(data, at + 1)
    return data[at] >> 3, start, start + length


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, payload: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(payload)) + payload


def _masked(data: bytes) -> int:
    import crc32c  # a dependency of gpupipe: present wherever the benchmark runs

    crc = int(crc32c.crc32c(data))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
