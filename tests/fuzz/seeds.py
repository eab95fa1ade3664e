"""Inputs to begin with: records, Examples, leaves and images, all drawn here.

`python -m tests.fuzz.seeds FOLDER` writes those of every target to FOLDER/<target>/.
"""

from __future__ import annotations

import hashlib
import io
import struct
import sys
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, features

from gpupipe.extract.examples.encode import encode_example
from gpupipe.extract.examples.wire import encode_varint
from gpupipe.extract.records.crc import masked_crc32c
from gpupipe.ragged import Ragged
from gpupipe.serial.columns import add_column
from tests.fuzz.archives import described
from tests.fuzz.ipc import messages


def frame(record: bytes) -> bytes:
    """A record with its length and CRCs."""
    return header_of(len(record)) + record + struct.pack("<I", masked_crc32c(record))


def header_of(length: int) -> bytes:
    """A header whose CRC fits."""
    head = struct.pack("<Q", length)
    return head + struct.pack("<I", masked_crc32c(head))


RECORDS = (b"", b"zero", b"one" * 20, b"\0" * 40)
STREAM = b"".join(map(frame, RECORDS))
ABSURD = (2**63, 2**64 - 1, 2**64 - 16, 2**40, 2**31, 100)
FOREIGN = (b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n", b"PAR1", b"PK\3\4", b"ARROW1", b"\x1f\x8b", b"x\x9c", b"a,b\n")


def streams() -> Iterator[bytes]:
    """Files of records: good, cut, damaged in each part, with absurd lengths, and of other formats."""
    yield b""
    yield STREAM
    yield from (STREAM[:-cut] for cut in (1, 4, 5, 30, 53, 60))
    yield from (STREAM[:at] + b"\x55" + STREAM[at + 1 :] for at in (0, 8, 16, 24, 30, 36, 40, 70))
    yield from (frame(b"x") + header_of(length) + b"some bytes" for length in ABSURD)
    yield from (header_of(length) + frame(b"x") for length in ABSURD)
    yield b"\1" + frame(b"") + b"\1" + frame(b"y") + b"\1"
    yield bytes(100) + frame(b"behind zeros")
    yield from (begin + bytes(30) for begin in FOREIGN)


def framing() -> Iterator[bytes]:
    """Windows, with the CRCs they have and with others put in."""
    for k, stream in enumerate(streams()):
        yield bytes((1 | k % 8 << 1 & 0xFF, 0, 0)) + stream
    for flags in range(0, 256, 6):
        yield bytes((flags & 0xFE, flags >> 3, flags)) + STREAM
    yield bytes((0, 1, 0)) + STREAM
    yield bytes((0x10, 1, 0)) + STREAM


def files() -> Iterator[bytes]:
    """Files, plain and compressed, whole and cut, with small blocks and larger ones."""
    for k, stream in enumerate(streams()):
        yield bytes((1, 0, 0, k % 3)) + stream
        for flag, wbits in ((4, 31), (8, 15)):
            packer = zlib.compressobj(wbits=wbits)
            packed = packer.compress(stream) + packer.flush()
            yield bytes((1 | flag | 16, 0, 0, k % 3)) + packed
            if k in (1, 8):
                yield bytes((1 | flag | 16, 0, 0, 0)) + packed + packed
                yield bytes((1 | flag | 16, 0, 0, 0)) + packed + bytes(20) + packed
                yield bytes((1 | flag | 16, 0, 0, 0)) + packed + b"not compressed"
                yield bytes((1 | flag | 64, 1, 0, 0)) + stream
                yield bytes((1 | flag, 0, 0, 8)) + stream
                yield bytes((flag, 0x14, 0, 8)) + frame(bytes(600)) + stream
                yield bytes((1 | flag, 0, 0, 8)) + header_of(5000) + stream
                yield bytes((1 | flag | 16, 0, 0, 0)) + packed[:-5]
                yield bytes((1 | flag | 16, 0, 0, 0)) + packed[:30] + b"\x55\x55" + packed[32:]
                yield bytes((1 | flag | 16, 0, 0, 0)) + stream
            yield bytes((flag | 32, 40 * (k % 7), 0, 0)) + stream
            yield bytes((1 | flag | 64, 0, 0, k % 3)) + stream
    yield bytes((1, 0, 0, 8)) + (b"\1" + frame(b"x")) * 20
    long = b"".join(frame(bytes([k]) * (97 * k % 301)) for k in range(12))
    for flags in (0, 2, 4, 8, 64, 128, 68, 72, 132, 160, 196):
        for spoil in (0, 1, 0x24, 0x90):
            yield bytes((flags, spoil, 255 - spoil, spoil & 1 | 0x10)) + long
            yield bytes((flags, spoil, spoil, 0)) + long[:-200]


def field(number: int, data: bytes) -> bytes:
    """A field that holds bytes."""
    return encode_varint(number << 3 | 2) + encode_varint(len(data)) + data


def entry(name: bytes, feature: bytes) -> bytes:
    """An entry of the map of features."""
    return field(1, field(1, name) + field(2, feature))


def examples() -> Iterator[bytes]:
    """Examples as writers make them, and in every form that protobuf allows or forbids."""
    yield encode_example(
        {
            "image": bytes(20),
            "label": 300,
            "boxes": [0.5] * 3,
            "many": [1, -1, 2**40, 5] * 5,
            "names": ["a", "bc"],
            "score": 0.5,
            "unused": [1] * 5,
        }
    )
    yield encode_example({"a": [1, 2], "b": [1.0, 2.0], "c": [b"x", b"y"], "d": ["z"], "e": [1.0] * 6, "f": b"one"})
    yield encode_example({"": [1], "a": [3] * 40, "bb": [0.5], "cc": [b""]})
    yield encode_example({"image": b"x" * 200, "label": -1, "xxxxxxx": b"y" * 200, "names": [b"n"] * 3})
    yield encode_example({"a": 1, "b": 1.0})
    yield encode_example({"a": 200, "b": 1.0, "c": 2})
    yield encode_example({"a": [2**63 - 1, -(2**63)] * 5})
    one = field(3, field(1, b"\1"))
    wrap = [
        entry(b"a", one),
        entry(b"a", field(3, b"\x08\x05\x08\x96\x01")),  # not packed
        entry(b"a", field(3, field(1, b"\1") + b"\x08\x02" + field(1, b"\3"))),
        entry(b"a", field(3, field(1, b"\x80") + field(1, b"\1"))),  # a number across two pieces
        entry(b"a", field(3, field(1, b"\xff" * 9 + b"\1"))),
        entry(b"a", field(3, field(1, b"\xff" * 10 + b"\1"))),
        entry(b"a", field(3, field(1, b"\xff" * 10 + b"\1" * 40))),
        entry(b"a", field(3, field(1, b"\1" * 40 + b"\xff"))),
        entry(b"a", field(3, field(1, b"\x80\x80\1"))),
        entry(b"a", field(3, field(1, b"\x80\x80\x80\1"))),
        entry(b"a", field(3, b"\x0d\0\0\0\0")),
        entry(b"a", field(3, b"\x10\x01")),
        entry(b"a", field(3, b"")),
        entry(b"a", b""),
        entry(b"a", field(4, b"x")),
        entry(b"a", one + field(1, field(1, b"x"))),
        entry(b"a", one + one),
        entry(b"a", one) + entry(b"a", field(3, field(1, b"\2"))),
        entry(b"b", field(2, field(1, b"\0\0\x80\x3f"))),
        entry(b"b", field(2, b"\x0d\0\0\x80\x3f")),
        entry(b"b", field(2, field(1, b"\0\0\x80"))),
        entry(b"b", field(2, b"\x08\1")),
        entry(b"b", field(2, field(1, bytes(8)))),
        entry(b"f", field(1, b"\x08\1")),
        entry(b"f", field(1, b"")),
        entry(b"f", field(1, field(1, b"x") + field(2, b"y"))),
        field(1, field(2, one) + field(1, b"a")),
        field(1, field(1, b"a") + field(2, one) + field(3, b"x")),
        field(1, field(1, b"zzz") + field(1, b"a") + field(2, one)),
        field(1, field(1, b"a")),
        field(1, field(2, one)),
        field(1, b""),
        field(1, b"\n"),
        field(2, b"x") + entry(b"a", one),
        b"\x0a\x7f" + entry(b"a", one),
        b"\x0a\x0c\x0a\x07unknown\x12\x01\x0a" * 3,
        entry(b"unknown", one) + field(1, field(1, b"unknown")[:-1]) + entry(b"a", one),
        entry(b"unknown", one) * 2 + b"\x0a\x10\x0a\x07",
    ]
    yield from (field(1, inner) for inner in wrap)
    yield field(1, wrap[0]) + field(1, wrap[1])
    yield field(2, b"x") + field(1, wrap[0])
    yield field(1, wrap[0]) + b"\x09" + bytes(8) + b"\x15" + bytes(4) + b"\x18\1"
    yield from (bytes((tag,)) + bytes(8) for tag in (0, 2, 3, 0x0B, 0x0C, 0x0E, 0x0F, 8, 9, 0x0D, 0x80))
    yield from (b"\x0a" + encode_varint(length) + b"\x0a\0" for length in (2**63, 2**64 - 1, 2**32, 2**21, 128, 3))
    yield b"\x0a" + b"\xff" * 11
    yield b""


def example() -> Iterator[bytes]:
    """Records for each of the parsers, also behind another one."""
    known = list(examples())
    for chosen in range(4):
        for record in known:
            yield bytes((chosen, 0)) + record
    for count in (40, 120):
        packed = b"".join(encode_varint(k * k) for k in range(count))
        for more in (b"", b"\xff" * 11, b"\xff" * 11 + bytes(20), b"\xff", b"\xff" * 9 + b"\1"):
            yield bytes((8 | 1, 0)) + field(1, entry(b"a", field(3, field(1, packed + more))))
    yield bytes((8 | 1, 0)) + field(1, entry(b"a", field(3, field(1, b"\1" * 33 + b"\xff" * 40 + b"\1"))))
    short = [record for record in known if len(record) < 256]
    for k, record in enumerate(known):
        first = short[(3 * k + 1) % len(short)]
        yield bytes((k & 3, len(first))) + first + record


def columns() -> Iterator[bytes]:
    """Leaves of every kind, and malformed ones."""
    inner = Ragged(np.arange(3, dtype="f4"), np.array([0, 1, 3], "i4"))
    leaves: list[Any] = [b"", b"bytes", inner, Ragged(inner, np.array([0, 0, 2])), np.array([b"a", b"", b"cc"], object)]
    leaves += [np.array([[b"x"], [b"y"]], object), np.zeros((2, 0, 3), "u1"), np.array(5.0), np.bool_(True)]
    for name in "?,i1,u1,i2,u2,i4,u4,i8,u8,f2,f4,f8".split(","):
        leaves += [np.arange(2).astype(name), np.dtype(name).type(1)]
    written = []
    for leaf in leaves:
        parts: list[Any] = []
        add_column(leaf, parts)
        written.append(b"".join(parts))
    yield from written
    yield from (data[:-1] for data in written)
    huge = struct.pack("<Q", 2**63)
    yield b"\0" + huge
    yield b"\1\2\2" + huge + struct.pack("<Q", 0)
    yield b"\1\2\x21" + bytes(300)
    yield b"\1\2\x20" + huge * 31 + bytes(8)
    yield b"\1\x20\0"
    yield b"\2\0\5"
    yield b"\1\0\1" + struct.pack("<Q", 2) + b"\1\2"
    yield b"\3\1" + huge
    yield b"\3\2" + huge + bytes(8)
    yield b"\3\1" + struct.pack("<QQ", 1, 2**62)
    yield b"\4" * 40
    yield b"\4" + written[1] + written[1]
    yield b"\4" + written[5] + written[7]
    yield b"\5"


def images() -> Iterator[bytes]:
    """Small images of every format, with an orientation where the format has one, and odd ones."""
    pixels = np.arange(8 * 6 * 3, dtype=np.uint8).reshape(8, 6, 3)
    exif = Image.Exif()
    exif[0x0112] = 6
    kinds = ["JPEG", "PNG", "GIF", "BMP", "TIFF", *(["WEBP"] if features.check("webp") else [])]
    tall = np.tile(pixels, (6, 1, 1))  # of which the upper rows can be decoded alone
    yield from (encoded(tall, "JPEG", **way) for way in ({"subsampling": 0}, {"restart_marker_rows": 1}))
    for kind in kinds:
        options: dict[str, Any] = {"exif": exif.tobytes()} if kind in ("JPEG", "PNG", "TIFF", "WEBP") else {}
        if kind == "JPEG":
            yield from (encoded(pixels, kind, progressive=yes, **options) for yes in (False, True))
        yield encoded(pixels, kind, **options)
        yield encoded(pixels[:, :, 0], kind)
    if features.check("webp"):
        alpha = np.dstack((pixels, pixels[:, :, :1]))
        yield from (encoded(alpha, "WEBP", lossless=yes) for yes in (False, True))
        yield encoded(pixels, "WEBP", lossless=True)
    yield encoded(np.dstack((pixels, pixels[:, :, :1])), "PNG")
    yield from odd_jpegs(exif.tobytes())
    yield from odd_others(exif.tobytes()[6:])


def encoded(pixels: Any, kind: str, **options: Any) -> bytes:
    """An image in a format of Pillow's."""
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind, **options)
    return out.getvalue()


def odd_jpegs(exif: bytes) -> Iterator[bytes]:
    """JPEGs whose headers say absurd things, or nothing."""
    start, end = b"\xff\xd8", b"\xff\xd9"

    def frame_of(width: int, height: int, channels: int = 3, bits: int = 8, marker: int = 0xC0) -> bytes:
        body = struct.pack(">BHHB", bits, height, width, channels) + bytes(3 * channels)
        return struct.pack(">BBH", 0xFF, marker, 2 + len(body)) + body

    scan = b"\xff\xda\0\3\1"
    sized = frame_of(6, 8)
    yield start + sized + scan + b"data" + end
    yield start + sized + scan + b"data" + end + b"a film follows"
    yield start + sized + scan + b"no end"
    for inside in (b"\xff\0\xff\xd0..", b"\xff\0.\xff\xff\xc0.", b".\xff\x01.", b"\xff\xff\xff"):
        yield start + sized + b"\xff\xda\0\x0c\3" + bytes(9) + inside + end
        yield start + sized + b"\xff\xda\0\x0c\2" + bytes(9) + inside + end
    yield start + sized + b"\xff\xda\0\x0c\3" + bytes(9) + b"\xff\0"
    yield start + sized + b"\xff\xda\0\x0c\3"
    yield start + sized + b"no scan" + end
    yield start + sized + b"no scan, no end"
    yield start + sized + b"\xff\xff\xff\x01\xff\xd0" + scan + end + b"more"
    yield start + sized + end + b"\0\2 more"
    yield start + sized + b"\xff\xe0\0\1 more"
    yield from (start + frame_of(w, h) + scan + end for w, h in ((65535, 65535), (0, 8), (8, 0), (30000, 30000)))
    yield from (start + frame_of(6, 8, channels) + scan + end for channels in (0, 1, 2, 4, 255))
    yield from (start + frame_of(6, 8, bits=bits) + scan + end for bits in (0, 12, 255))
    yield from (start + frame_of(6, 8, marker=marker) for marker in (0xC1, 0xC2, 0xC9, 0xCE, 0xC4, 0xC8))
    yield start + b"\xff\xff\xff\x01\xff\xd0" + sized
    yield start + b"\xff\xff\xff"
    yield from (start + bytes((0xFF, marker, 0, 2)) + sized for marker in (0, 0xD8, 0xD9, 0xDA, 0xE0))
    yield start + b"\xff\xe0\0\1" + sized
    yield start + b"\xff\xe0\xff\xff" + sized
    yield start + b"x" + sized
    yield start + sized[:9]
    yield start
    for revision, transform, channels in ((1, 0, 3), (2, 1, 3), (9, 77, 3), (1, 2, 4), (0, 1, 4), (1, 9, 1)):
        jfif = b"\xff\xe0\0\x10JFIF\0" + bytes((revision,)) + bytes(8)
        adobe = b"\xff\xee\0\x0eAdobe" + bytes(6) + bytes((transform,))
        yield start + jfif + adobe + frame_of(6, 8, channels) + scan + end
    blocks = [exif, exif[:20], b"Exif\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff", b"http://ns", b"Exif\0\0XX*\0"]
    blocks.append(exif[:6] + b"II*\0\x08\0\0\0" + b"\2\0" + struct.pack("<HHIH2x", 1, 3, 1, 9) * 2)
    blocks += [b"Exif\0\0" + directory(order, tag, kind, value) for order, tag, kind, value in DIRECTORIES]
    said = [struct.pack(">BBH", 0xFF, 0xE1, 2 + len(block)) + block for block in blocks]
    yield from (start + one + sized + scan + end for one in said)
    yield from (start + one + said[0] + sized + scan + end for one in said)
    empty = b"\xff\xe0\0\2"
    yield start + empty * 7 + sized + scan + end
    yield start + sized + empty * 7 + scan + end
    yield from (start + sized + scan + (b"data" + scan) * 3 + end for sized in (sized, frame_of(6, 8, 1)))
    yield start + sized + b"\xff\xff\x01\xff" * 3 + scan + b"data" + end


DIRECTORIES = (("<", 0x0112, 3, 8), (">", 0x0112, 3, 3), (">", 0x0112, 4, 3), ("<", 0x0112, 3, 9), ("<", 0x100, 3, 5))


def directory(order: str, tag: int, kind: int, value: int) -> bytes:
    """A TIFF directory of one entry."""
    begin = b"II*\0" if order == "<" else b"MM\0*"
    return begin + struct.pack(f"{order}IHHHIHH", 8, 1, tag, kind, 1, value, 0)


def tiff(order: str, *tags: tuple[int, int, int, int]) -> bytes:
    """A TIFF header of (tag, kind, count, value)."""
    begin = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}IH", 8, len(tags))
    return begin + b"".join(
        struct.pack(f"{order}HHI", tag, kind, n)
        + (struct.pack(f"{order}H2x", value) if kind == 3 and n == 1 else struct.pack(f"{order}I", value))
        for tag, kind, n, value in tags
    )


def odd_others(exif: bytes) -> Iterator[bytes]:
    """PNG, GIF, BMP, WebP and TIFF headers that say absurd things, or nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    def png(width: int, height: int, bits: int = 8, colour: int = 2, *more: bytes) -> bytes:
        head = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 1)
        return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(more)

    yield png(30000, 30000) + chunk(b"IEND", b"")
    rows = zlib.compress(bytes(3 * 7))
    for kind, data in ((b"gAMA", bytes(4)), (b"acTL", bytes(8)), (b"tEXt", b"a\0b")):
        yield png(2, 3, 8, 2, chunk(kind, data), chunk(b"IDAT", rows), chunk(b"IEND", b""))
    yield png(2, 3, 8, 3, chunk(b"eXIf", exif), chunk(b"IEND", b"")) + b"behind the end"
    yield png(2, 3, 16, 0, struct.pack(">I", 2**31) + b"IDAT")
    yield from (
        png(*size) for size in ((0, 1, 8, 2), (2**31, 1, 8, 2), (1, 2**32 - 1, 8, 2), (1, 1, 0, 2), (1, 1, 8, 5))
    )
    yield png(2, 3)[:20]
    yield from (b"GIF89a" + struct.pack("<HH", *size) for size in ((2, 3), (0, 3), (65535, 65535)))
    yield b"GIF87a\1"
    yield b"BM" + bytes(12) + struct.pack("<IHHHH", 12, 2, 3, 1, 24)
    for size in ((2, -3), (-2, 3), (2**31 - 1, -(2**31)), (2, 0)):
        yield b"BM" + bytes(12) + struct.pack("<IiiHH", 40, *size, 1, 32)
    yield b"BM" + bytes(12) + struct.pack("<I", 13) + bytes(20)
    riff = b"RIFF" + struct.pack("<I", 40) + b"WEBP"
    yield riff + b"VP8 " + bytes(7) + b"\x9d\1\x2a" + struct.pack("<HH", 0xC002, 3)
    yield riff + b"VP8 " + bytes(30)
    yield riff + b"VP8L" + bytes(4) + b"\x2f" + struct.pack("<I", 1 << 28 | 5)
    yield riff + b"VP8L" + bytes(30)
    extended = riff + b"VP8X" + struct.pack("<I", 10) + b"\x18\0\0\0" + b"\5\0\0" + b"\7\0\0"
    yield extended
    yield extended + struct.pack("<4sI", b"ALPH", 3) + bytes(4) + struct.pack("<4sI", b"EXIF", len(exif)) + exif
    yield extended + struct.pack("<4sI", b"EXIF", len(exif) + 6) + b"Exif\0\0" + exif
    yield extended + struct.pack("<4sI", b"ALPH", 2**32 - 1)
    yield extended[:-2]
    yield riff
    yield riff + b"XXXX" + bytes(20)
    yield b"RIFF" + struct.pack("<I", 40) + b"WAVEfmt " + bytes(20)
    sizes = ((256, 4, 1, 5), (257, 3, 1, 7))
    for order in "<>":
        yield tiff(order, *sizes, (258, 3, 3, 8), (274, 3, 1, 6), (277, 3, 1, 3))
        yield tiff(order, *sizes, (258, 3, 1, 0), (277, 3, 1, 0), (274, 3, 1, 11))
    yield tiff("<", *sizes, (277, 4, 1, 2**32 - 1), (258, 4, 1, 2**32 - 1))
    yield tiff("<", (256, 4, 1, 2**32 - 1), (257, 4, 2, 4), (300, 5, 1, 1), (274, 2, 1, 1))
    yield tiff("<", *sizes[:1])
    yield tiff("<", (256, 4, 2, 2**32 - 1))
    yield b"II*\0" + struct.pack("<IH", 8, 65535)
    yield b"II*\0" + struct.pack("<I", 2**32 - 1)
    yield from (b"", b"\xff", b"text")


def headers() -> Iterator[bytes]:
    """Images, handed over as bytes, as a view and as a bytearray."""
    for k, image in enumerate(images()):
        yield bytes((k % 3,)) + image
    fill = b"\xff\xe0\0\2" * 8
    frame_of = b"\xff\xc0\0\x0b\x08\0\1\0\1\1\0\0\0"
    yield b"\x08\xff\xd8" + fill + frame_of
    yield b"\x08\xff\xd8" + frame_of + fill + b"\xff\xda\0\2"
    for marker in (0xC0, 0xC2):
        sized = b"\xff" + bytes((marker,)) + b"\0\x0b\x08\0\1\0\1\1\0\0\0"
        for channels in (1, 2):
            scan = b"\xff\xda\0\3" + bytes((channels,)) + b".\xff\0.\xff\xd1"
            for gap in (b"", b"nothing", b"\xff\0\xff\xff", b"\xff\xd3"):
                yield b"\x08\xff\xd8" + sized + gap + scan * 3 + b"\xff\xd9"
            yield b"\x08\xff\xd8" + sized + (scan + b"\xff\xc4\0\x04..\xff\x01") * 3 + b"\xff\xd9"
            yield b"\x08\xff\xd8" + sized + scan + b"\xff\xd9" + scan * 3 + b"\xff\xd9"
            yield b"\x08\xff\xd8" + sized + b"\xff\xe0\0\x08" + b"\xff\xda" * 3 + scan * 2 + b"\xff\xd9"
            yield b"\x08\xff\xd8" + sized + b"\xff\xe0\0\x08" + b"\xff\xda" * 3 + scan
            yield b"\x08\xff\xd8" + sized + scan[:4]
            yield b"\x08\xff\xd8" + sized + b"nothing" + b"\xff\xd9"
    yield b"\x08RIFF" + bytes(4) + b"WEBPVP8X" + struct.pack("<I", 10) + b"\x08" + bytes(9) + bytes(80)


def tars() -> Iterator[bytes]:
    """Archives as Python's tarfile writes them, of every format and kind of member, and damaged ones."""
    kinds = (
        tarfile.REGTYPE,
        tarfile.AREGTYPE,
        tarfile.DIRTYPE,
        tarfile.LNKTYPE,
        tarfile.SYMTYPE,
        tarfile.GNUTYPE_SPARSE,
    )
    whole = []
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        for long in ("", "long/" * 40):
            out = io.BytesIO()
            with tarfile.open(fileobj=out, mode="w", format=form) as archive:
                for k, kind in enumerate(kinds):
                    one = tarfile.TarInfo(
                        f"{long if form != tarfile.USTAR_FORMAT else 'x/' * 60}{k // 2}.{'ab'[k % 2]}"
                    )
                    one.type, one.size = kind, 3 * k if kind in tarfile.REGULAR_TYPES else 0
                    archive.addfile(one, io.BytesIO(bytes(range(1, 1 + one.size))))
            whole.append(described(out.getvalue()))
    for flags, plain in enumerate(whole * 2):
        yield bytes((flags & 7, 0, 0x90 | flags)) + plain
        yield bytes((flags & 6, 1 << (flags & 7), 0)) + plain
    for key, value in (
        ("path", "y.a"),
        ("size", "2"),
        ("size", "x"),
        ("GNU.sparse.name", "z.b"),
        ("GNU.sparse.map", "1"),
    ):
        text = f" {key}={value}\n".encode()
        record = b"%d" % (len(text) + 2) + text
        for kind in (b"x", b"g", b"X"):
            for payload in (record, record[:-1], b"9" + record, b"x"):
                yield (
                    bytes((0, 0, 0))
                    + header_block(b"p", kind, len(payload))
                    + part(0, payload)
                    + header_block(b"q.a", b"0", 1)
                )
    for letter in b"0123456LKSM\0\xff":
        for size in (0, 5, 600, 1 << 20):
            yield (
                bytes((0, 0, 0))
                + header_block(b"k.b", bytes((letter,)), size)
                + part(0, b"data")
                + header_block(b"l.a", b"0", 0)
            )
    yield bytes((0, 0, 0)) + part(0, b"\x89PNG\r\n\x1a\n") + bytes(3)
    yield bytes((0, 255, 0)) + bytes(5) + part(100, b"no header") + header_block(b"k.b", b"0", 0)
    yield bytes((4, 0, 0x80)) + bytes(9) + whole[0]


def part(place: int, data: bytes) -> bytes:
    """A block with bytes at one place."""
    return b"\1" + struct.pack("<HB", place, len(data)) + data


def header_block(name: bytes, kind: bytes, size: int, *more: tuple[int, bytes]) -> bytes:
    """A header of the fields that matter; `archive_of` adds the checksum."""
    fields = ((0, name), (124, b"%011o\0" % size), (156, kind), (257, b"ustar\0"), *more)
    return bytes((len(fields),)) + b"".join(struct.pack("<HB", place, len(data)) + data for place, data in fields)


def footers() -> Iterator[bytes]:
    """Footers of Arrow files: good, cut, with each byte changed; whole files, and what is none."""
    head, footer = messages()
    whole = head + footer + struct.pack("<i", len(footer)) + b"ARROW1"
    yield b"\0" + footer
    yield b"\1" + whole
    yield from (b"\0" + footer[:at] + b"\x7f" + footer[at + 1 :] for at in range(0, len(footer), 3))
    yield from (b"\0" + footer[:at] + b"\xff" + footer[at + 1 :] for at in range(1, len(footer), 5))
    yield from (b"\1" + whole[:at] + bytes((whole[at] ^ 0x55,)) + whole[at + 1 :] for at in range(0, len(head), 7))
    yield from (b"\1" + whole[:cut] for cut in (0, 6, 10, 40, len(whole) - 4))
    yield from (b"\1" + begin + bytes(20) for begin in (b"\xff\xff\xff\xff", b"FEA1", b"PAR1"))


SEEDS = {
    "framing": framing,
    "files": files,
    "example": example,
    "columns": columns,
    "headers": headers,
    "archives": tars,
    "ipc": footers,
}


def main(folder: str) -> None:
    """Write the seeds of every target."""
    for target, seeds in SEEDS.items():
        place = Path(folder, target)
        place.mkdir(parents=True, exist_ok=True)
        for data in seeds():
            (place / hashlib.sha1(data).hexdigest()).write_bytes(data)


if __name__ == "__main__":
    main(sys.argv[1])
