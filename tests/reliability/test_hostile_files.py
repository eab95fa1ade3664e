"""Hostile files: each is a typed error that names it, in bounded memory and without a hang; the rest is delivered."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import socket
import struct
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.errors import DataError, DecodeError, DirectoryError, MissingFileError, ParseError, RecordError
from gpupipe.extract.examples.encode import encode_example
from gpupipe.extract.records import framing, inflate, lines, tfrecord
from gpupipe.extract.records.crc import masked_crc32c
from gpupipe.extract.records.framing import HEADER
from gpupipe.extract.records.index import INDEXES, record_index
from gpupipe.extract.records.inflate import longest_record
from gpupipe.extract.storage.files import LOCAL
from gpupipe.transform.machine import has_dali

PATIENCE = 30.0
"""Seconds until something counts as hanging: a deadline, never what it should take."""

MEGABYTE = 1 << 20


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    INDEXES.clear()
    LOCAL.close()
    yield
    INDEXES.clear()
    LOCAL.close()


def frame(payload: bytes) -> bytes:
    return header(len(payload)) + payload + struct.pack("<I", masked_crc32c(payload))


def header(length: int) -> bytes:
    said = struct.pack("<Q", length)
    return said + struct.pack("<I", masked_crc32c(said))


GOOD = [b"good %d" % i for i in range(5)]
STREAM = b"".join(map(frame, GOOD))


@contextlib.contextmanager
def memory_below(most: int) -> Iterator[None]:
    """What Python and NumPy allocate in between stays below a number of bytes."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def in_time(work: Callable[[], Any]) -> Any:
    """What `work` gives; it fails where that hangs, instead of hanging too."""
    got: list[Any] = []

    def run() -> None:
        try:
            got.append((work(), None))
        except BaseException as error:
            got.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert got, "it hangs"
    value, error = got[0]
    if error is not None:
        raise error
    return value


def taken(dataset: Dataset) -> tuple[list[Any], list[DataError]]:
    """Everything there is, with the errors in between."""

    def take() -> tuple[list[Any], list[DataError]]:
        good: list[Any] = []
        bad: list[DataError] = []
        with dataset.iterator() as items:
            while True:
                try:
                    value = next(items)
                except StopIteration:
                    return good, bad
                except DataError as error:
                    bad.append(error)
                else:
                    good.append(bytes(value) if isinstance(value, (bytes, memoryview)) else value)

    found: tuple[list[Any], list[DataError]] = in_time(take)
    return found


def skipped(dataset: Dataset) -> list[Any]:
    """What is left under "skip"."""
    good, bad = taken(dataset.with_options(Options(on_error="skip")))
    assert bad == []
    return good


READERS: dict[str, Callable[[str], Dataset]] = {
    "records": gp.TFRecordDataset,
    "references": lambda path: gp.TFRecordDataset(path).shuffle(2, seed=1),
    "gzip": lambda path: gp.TFRecordDataset(path, compression_type="GZIP"),
    "lines": gp.TextLineDataset,
    "fixed": lambda path: gp.FixedLengthRecordDataset(path, 4),
    "samples": lambda path: gp.WebDataset(path, "jpg"),
    "places of samples": lambda path: gp.WebDataset(path, "jpg").shuffle(2, seed=1),
    "read_file": lambda path: Dataset.from_tensors(path).map(lambda name: gp.io.read_file(name)),
}


# ---- records


@pytest.mark.parametrize("read", ["records", "references", "gzip"])
@pytest.mark.parametrize("length", [2**31, 2**63 - 17, 2**64 - 1])
def test_a_record_of_absurd_length_is_one_error(tmp_path: Path, read: str, length: int) -> None:
    data = STREAM + header(length) + b"a few bytes"
    bad, good = tmp_path / "bad", tmp_path / "good"
    bad.write_bytes(gzip.compress(data) if read == "gzip" else data)
    good.write_bytes(gzip.compress(STREAM) if read == "gzip" else STREAM)
    both = Dataset.from_tensor_slices([str(bad), str(good)]).flat_map(READERS[read])

    with memory_below(8 * MEGABYTE):
        records, errors = taken(both)
        left = skipped(both)

    assert sorted(records) == sorted(left) == sorted(2 * GOOD)
    (error,) = errors
    assert isinstance(error, RecordError)
    assert (error.file, error.offset, error.stage) == (str(bad), len(STREAM), "read")
    assert "its length exceeds the file" in error.reason


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> int:
    """A low bound on the search behind damage, in bytes."""
    for module in (framing, tfrecord, lines):
        monkeypatch.setattr(module, "SEARCHED", 4 * MEGABYTE)
    return 4 * MEGABYTE


SEARCHES: dict[str, Callable[[str], Dataset]] = {
    "records": gp.TFRecordDataset,
    "references": lambda path: gp.TFRecordDataset(path).shuffle(2, seed=1),
    "index": lambda path: gp.TFRecordDataset(path).shuffle(gp.ALL, seed=1),
}


@pytest.mark.parametrize("read", SEARCHES)
@pytest.mark.parametrize("surplus", [-1, 0, 1])
def test_behind_damage_the_next_record_is_found_within_a_bound(
    tmp_path: Path, searched: int, read: str, surplus: int
) -> None:
    path, start = tmp_path / "records", len(STREAM)
    gap = searched + surplus
    path.write_bytes(STREAM + bytes(gap) + frame(b"behind") + frame(b"last"))

    records, errors = taken(SEARCHES[read](str(path)))

    (error,) = errors
    assert (error.file, error.offset) == (str(path), start)
    if surplus <= 0:
        assert f"{gap} bytes are skipped" in str(error)
        assert sorted(records) == sorted([*GOOD, b"behind", b"last"])
    else:
        left = len(frame(b"behind") + frame(b"last")) + surplus - HEADER
        assert f"no record starts within {searched} bytes, the last {left} bytes are left unread" in str(error)
        assert sorted(records) == GOOD


@pytest.mark.parametrize("follows", [True, False])
def test_a_search_in_a_compressed_file_is_bounded(tmp_path: Path, searched: int, follows: bool) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(members(STREAM + bytes(searched // 2) + (frame(b"x") if follows else bytes(20 * MEGABYTE)), 1))

    records, errors = taken(gp.TFRecordDataset(str(path), compression_type="GZIP"))

    (error,) = errors
    assert records == GOOD + [b"x"] * follows
    reason = f"{searched // 2} bytes are skipped" if follows else f"within {searched} bytes, what follows is left"
    assert reason in str(error)


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_a_line_without_end_is_given_up(tmp_path: Path, searched: int, compression: str) -> None:
    for size, given_up in ((searched, False), (searched + 3 * MEGABYTE, True)):
        data = b"first\n" + bytes(size) + b"\nlast\n"
        (tmp_path / "hole").write_bytes(gzip.compress(data, 1) if compression else data)

        reader = lines.LineReader(str(tmp_path / "hole"), compression=compression, longest=MEGABYTE)
        (_, first), (at, error), (end, last) = list(reader)

        assert (first, at) == (b"first", 6)
        assert "is this a text file?" in str(error)
        assert ("what follows is left unread" in str(last)) is given_up
        assert given_up or last == b"last"
        assert end <= 7 + searched + 2 * MEGABYTE


def test_a_long_footer_of_a_compressed_file_is_held_once(tmp_path: Path) -> None:
    footer = 24 * MEGABYTE
    path = tmp_path / "a"
    path.write_bytes(gzip.compress(bytes(range(256)) * 4096 + bytes(footer), 1))

    with memory_below(footer * 3 // 2):
        records, errors = taken(
            gp.FixedLengthRecordDataset([str(path)], 1024, footer_bytes=footer, compression_type="GZIP").map(
                lambda record: record[:4], traced=False
            )
        )

    assert records == [bytes(range(4))] * 1024
    assert errors == []


# ---- Examples


def field(number: int, data: bytes) -> bytes:
    size, n = b"", len(data)
    while n > 127:
        size += bytes([n & 127 | 128])
        n >>= 7
    return bytes([number << 3 | 2]) + size + bytes([n]) + data


def entry(name: bytes, feature: bytes) -> bytes:
    return field(1, field(1, name) + field(2, feature))


NEGATIVE = b"\xff" * 9 + b"\x01"
INT = field(3, field(1, b"\x05"))
HOSTILE_EXAMPLES = {
    "a negative length": b"\x0a" + NEGATIVE,
    "a negative length below": field(1, b"\x0a" + NEGATIVE),
    "a negative length of a list": field(1, entry(b"x", b"\x1a" + NEGATIVE)),
    "a varint of eleven bytes": field(1, entry(b"x", field(3, field(1, b"\xff" * 11)))),
    "a varint without an end": field(1, entry(b"x", field(3, field(1, b"\xff" * 5)))),
    "a value that reaches over its list": field(1, entry(b"x", field(3, b"\x0a\x05\x01"))),
    "an entry that reaches over the map": b"\x0a\x03" + entry(b"x", INT),
    "a feature that reaches over its entry": field(1, field(1, field(1, b"x") + b"\x12\x7f" + INT)),
    "groups": b"\x0b" * 100_000,
    "a group in a feature": field(1, entry(b"x", b"\x0b" * 1000 + b"\x0c" * 1000)),
    "no wire type 7": b"\x0f\x00",
    "field 0": b"\x00\x00",
    "a length near 2^63": b"\x0a" + b"\xff" * 8 + b"\x7f",
    "nothing of it": b"",
    "another feature": field(1, entry(b"y", INT)),
    "floats as integers": field(1, entry(b"x", field(2, field(1, b"\x00\x00\x80\x3f")))),
    "too many": field(1, entry(b"x", field(3, field(1, b"\x05" * 100_000)))),
}


@pytest.mark.parametrize("name", HOSTILE_EXAMPLES)
def test_a_hostile_example_is_an_error_of_its_record(tmp_path: Path, name: str) -> None:
    fine = encode_example({"x": 7})
    path = tmp_path / "examples"
    path.write_bytes(frame(fine) + frame(HOSTILE_EXAMPLES[name]) + frame(fine))
    spec = {"x": gp.io.FixedLenFeature((), "int64")}
    dataset = gp.TFRecordDataset(str(path)).map(lambda record: gp.io.parse_single_example(record, spec)["x"])

    with memory_below(16 * MEGABYTE):
        good, errors = taken(dataset)

    assert [int(x) for x in good] == [7, 7]
    (error,) = errors
    assert isinstance(error, ParseError)
    assert (error.file, error.offset, error.stage) == (str(path), len(frame(fine)), "parse_single_example")
    assert [int(x) for x in skipped(dataset)] == [7, 7]
    assert len(str(error)) < 1000


def nested(depth: int) -> bytes:
    """Unknown fields in one another; built from the inside, as its size is quadratic otherwise."""
    parts, size = [], 0
    for _ in range(depth):
        head = field(15, bytes(0))[:1] + varint(size)
        parts.append(head)
        size += len(head)
    return b"".join(reversed(parts))


def varint(n: int) -> bytes:
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


@pytest.mark.parametrize(
    "record",
    [
        field(1, entry(b"x", INT)) * 100_000,
        field(1, entry(b"x", INT) * 100_000),
        field(1, entry(b"y", INT) * 100_000 + entry(b"x", INT)),
        field(1, entry(b"x", INT)) + nested(100_000),
        field(1, entry(b"x", field(3, b"\x08\x05"))),
        field(1, entry(b"x", field(3, field(1, b"")) * 10_000 + INT)),
        field(15, b"") * 100_000 + field(1, entry(b"x", INT)),
    ],
    ids=["features", "entries", "others", "nested", "unpacked", "empty lists", "unknown fields"],
)
def test_what_is_repeated_or_nested_is_read_as_protobuf_reads_it(tmp_path: Path, record: bytes) -> None:
    path = tmp_path / "examples"
    path.write_bytes(frame(record))
    spec = {"x": gp.io.FixedLenFeature((), "int64")}
    dataset = gp.TFRecordDataset(str(path)).map(lambda record: gp.io.parse_single_example(record, spec)["x"])

    good, errors = taken(dataset)

    assert errors == []
    assert [int(x) for x in good] == [5]


# ---- compressed files


def members(data: bytes, times: int) -> bytes:
    """A gzip file of `times` members of the same data: a bomb that is made at once."""
    return gzip.compress(data) * times


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_a_record_that_is_a_bomb_is_passed_over(
    tmp_path: Path, compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A length that is right and whose bytes are there: only that nobody can want it in memory."""
    monkeypatch.setattr(inflate, "_ANYWAY", 2 * MEGABYTE)
    stream = frame(b"first") + header(24 * MEGABYTE) + bytes(24 * MEGABYTE + 4) + frame(b"last")
    path = tmp_path / "bomb"
    path.write_bytes(gzip.compress(stream) if compression == "GZIP" else zlib.compress(stream))
    del stream
    # The dataset has a fitting file of its own kind behind it.
    dataset = gp.TFRecordDataset([str(path)], compression_type=compression)

    most = longest_record(path.stat().st_size)
    with memory_below(10 * MEGABYTE):
        records, errors = taken(dataset)

    assert records == [b"first", b"last"]
    (error,) = errors
    assert isinstance(error, RecordError)
    assert (error.file, error.offset, error.stage) == (str(path), 21, "read")
    assert f"may have {most} bytes, its header says {24 * MEGABYTE}" in str(error)
    assert skipped(dataset) == [b"first", b"last"]


def test_a_bomb_of_more_than_256_megabytes_costs_no_memory(tmp_path: Path) -> None:
    length = 24 * 16 * MEGABYTE - 16
    path = tmp_path / "bomb"
    path.write_bytes(gzip.compress(header(length)) + members(bytes(16 * MEGABYTE), 24))

    with memory_below(10 * MEGABYTE):
        records, errors = taken(gp.TFRecordDataset([str(path)], compression_type="GZIP"))

    assert records == []
    assert f"may have {256 * MEGABYTE} bytes, its header says {length}" in str(errors[0])
    assert errors[0].offset == 0


def test_a_large_record_that_compresses_well_is_no_bomb(tmp_path: Path) -> None:
    path = tmp_path / "zeros"
    path.write_bytes(gzip.compress(frame(bytes(20 * MEGABYTE))))

    ((record,), errors) = taken(gp.TFRecordDataset([str(path)], compression_type="GZIP"))

    assert errors == []
    assert record == bytes(20 * MEGABYTE)


PACKED = gzip.compress(STREAM)
GZIPS = {
    "one member": (PACKED, None),
    "two members": (PACKED + PACKED, None),
    "a member for each record": (b"".join(gzip.compress(frame(x)) for x in GOOD), None),
    "empty members": (gzip.compress(b"") * 3000 + PACKED + gzip.compress(b""), None),
    "zeros behind": (PACKED + bytes(5000), None),
    "zeros between": (PACKED + bytes(700_000) + PACKED, None),
    "garbage behind": (PACKED + b"garbage", "7 bytes that are not GZIP data follow the end of the stream"),
    "zeros and garbage behind": (PACKED + bytes(9) + b"garbage", "7 bytes that are not GZIP data follow"),
    "cut": (PACKED[:-9], "the GZIP stream ends without its last bytes; the file is truncated"),
    "cut in the trailer": (PACKED[:-1], "the GZIP stream ends without its last bytes; the file is truncated"),
    "cut in a second header": (
        PACKED + PACKED[:7],
        "the GZIP stream ends without its last bytes; the file is truncated",
    ),
    "a wrong checksum": (PACKED[:-8] + b"1234" + PACKED[-4:], "the GZIP data is damaged"),
}


@pytest.mark.parametrize(("data", "reason"), GZIPS.values(), ids=GZIPS.keys())
def test_what_stands_in_a_gzip_file(tmp_path: Path, data: bytes, reason: str | None) -> None:
    path = tmp_path / "file.gz"
    path.write_bytes(data)

    records, errors = taken(gp.TFRecordDataset([str(path)], compression_type="GZIP"))

    if reason is None:
        assert b"".join(map(frame, records)) == gzip.decompress(data)  # as Python reads it
        assert errors == []
        return
    (error,) = errors
    assert reason in str(error)
    assert (error.file, error.stage) == (str(path), "read")
    assert records == GOOD[: len(records)]
    if "behind" in reason or "second" in reason or "checksum" in reason:
        assert records == GOOD


# ---- images


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


def jpeg(width: int, height: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (16, 16)).save(out, "JPEG")
    data = bytearray(out.getvalue())
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", height, width)
    return bytes(data)


def bmp(width: int, height: int) -> bytes:
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + 100, 0, 0, 54) + head + bytes(100)


def webp(width: int, height: int) -> bytes:
    body = b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4)
    body += (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    body += b"VP8L" + struct.pack("<I", 6) + b"\x2f" + bytes(5)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(3) + b";"


BOMBS = {
    "jpeg": jpeg(30_000, 30_000),
    "the largest jpeg": jpeg(65_535, 65_535),
    "a jpeg of no height": jpeg(100, 0),
    "png": png(30_000, 30_000),
    "the largest png": png(2**31 - 1, 2**31 - 1),
    "a png of no width": png(0, 5),
    "a png beyond what may be": png(2**32 - 1, 2**32 - 1),
    "bmp": bmp(30_000, 30_000),
    "a bmp upside down": bmp(30_000, -30_000),
    "a bmp of negative width": bmp(-5, 30_000),
    "the largest bmp": bmp(2**31 - 1, -(2**31)),
    "webp": webp(16_383, 16_383),
    "the largest webp": webp(1 << 24, 1 << 24),
    "gif": gif(65_535, 65_535),
    "no bytes": b"",
    "one byte": b"\xff",
}


def picture() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (20, 20), (1, 2, 3)).save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("backend", ["numpy", "dali"])
def test_an_image_of_absurd_size_is_an_error_of_its_record(tmp_path: Path, backend: str, name: str) -> None:
    if backend == "dali" and not has_dali():
        pytest.skip("DALI is not installed")
    path = tmp_path / "images"
    path.write_bytes(frame(picture()) + frame(BOMBS[name]) + frame(picture()))
    dataset = gp.TFRecordDataset(str(path)).map(lambda x: ops.resize(ops.decode_image(x, channels=3), (8, 8)))
    dataset = dataset.batch(2).with_options(Options(device="cpu", backend=backend))  # type: ignore[arg-type]

    with memory_below(48 * MEGABYTE):
        _, errors = taken(dataset)
        left = skipped(dataset)

    (error,) = errors
    assert isinstance(error, DecodeError)
    assert (error.file, error.offset) == (str(path), len(frame(picture())))
    assert error.stage == "decode_image"
    assert [batch.shape for batch in left] == [(2, 8, 8, 3)]


# ---- what a path may lead to


@pytest.mark.parametrize("read", READERS)
def test_a_file_of_no_bytes_has_no_records(tmp_path: Path, read: str) -> None:
    (tmp_path / "empty").write_bytes(b"")

    good, errors = taken(READERS[read](str(tmp_path / "empty")))

    assert good == ([b""] if read == "read_file" else [])
    assert errors == []


def a_socket(path: Path) -> None:
    where = os.getcwd()
    os.chdir(path.parent)  # its name may have 108 bytes
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(where)


NO_FILES: dict[str, tuple[Callable[[Path], Any], type[DataError], str]] = {
    "a FIFO": (lambda path: os.mkfifo(path), RecordError, "a regular file is needed, got a FIFO"),
    "a socket": (a_socket, RecordError, "a regular file is needed, got a socket"),
    "a device without end": (lambda path: path.symlink_to("/dev/zero"), RecordError, "got a character device"),
    "a device without bytes": (lambda path: path.symlink_to("/dev/null"), RecordError, "got a character device"),
    "a folder": (lambda path: path.mkdir(), DirectoryError, "got a directory"),
    "a link to itself": (lambda path: path.symlink_to(path), RecordError, "cannot be read: "),
    "a link to nowhere": (lambda path: path.symlink_to("nowhere"), MissingFileError, "no such file"),
    "nothing": (lambda path: None, MissingFileError, "no such file"),
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
@pytest.mark.parametrize(("make", "kind", "reason"), NO_FILES.values(), ids=NO_FILES.keys())
@pytest.mark.parametrize("read", READERS)
def test_what_is_no_file_is_an_error_and_no_hang(
    tmp_path: Path, read: str, make: Callable[[Path], Any], kind: type[DataError], reason: str
) -> None:
    make(tmp_path / "it")

    good, (error,) = taken(READERS[read](str(tmp_path / "it")))

    assert good == []
    assert type(error) is kind
    assert reason in str(error)
    assert error.file == str(tmp_path / "it")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
def test_a_fifo_that_comes_between_the_look_and_the_opening_is_no_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "it"
    path.write_bytes(STREAM)
    before = path.stat()
    path.unlink()
    os.mkfifo(path)
    look = os.stat
    monkeypatch.setattr(os, "stat", lambda name, *a, **k: before if name == str(path) else look(name, *a, **k))

    _, (error,) = taken(gp.TFRecordDataset([str(path)]))

    assert "a regular file is needed, got a FIFO" in str(error)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("name", ["x" * 5000, "y/" * 3000 + "z"], ids=["a long name", "a long path"])
def test_a_path_that_is_too_long_is_an_error(tmp_path: Path, read: str, name: str) -> None:
    good, (error,) = taken(READERS[read](f"{tmp_path}/{name}"))

    assert good == []
    assert "cannot be read: File name too long" in str(error)


def test_a_pattern_passes_over_links_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "nowhere").symlink_to(tmp_path / "none")
    (tmp_path / "back").symlink_to(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.tfrecord").write_bytes(STREAM)

    for pattern in ("*/a.tfrecord", "**/a.tfrecord", "folder/*", "**/*.tfrecord"):
        assert [bytes(x) for x in Dataset.list_files(str(tmp_path / pattern))] == [
            os.fsencode(tmp_path / "folder" / "a.tfrecord")
        ]
    for pattern in ("x" * 5000 + "/*", "y/" * 3000 + "*", "loop/*"):
        with pytest.raises(gp.PlanError, match="none match"):
            Dataset.list_files(str(tmp_path / pattern))


NAMES = {
    "a line break": b"two\nlines",
    "carriage return": b"over\rwritten",
    "a colour": b"\x1b[31mred\x1b[0m",
    "a bell": b"\x07",
    "bytes that are no text": b"\xff\xfe\x80",
    "a text direction": "\u202egnp.exe".encode(),
    "a line separator": "a\u2028b".encode(),
    "text": "grün 日本".encode(),
    "a backslash": b"back\\slash",
    "percent": b"%s%d{}",
}


@pytest.mark.skipif(os.name != "posix", reason="names are text there")
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_a_file_of_any_name_is_read_and_its_errors_are_one_line_of_text(tmp_path: Path, name: bytes) -> None:
    path = os.path.join(os.fsencode(tmp_path), name)
    try:
        with open(path, "wb") as file:
            file.write(STREAM[:-3])
    except OSError:
        pytest.skip("this file system has no such names")
    manifest = tmp_path.parent / f"{tmp_path.name}.jsonl"
    dataset = Dataset.list_files(str(tmp_path / "*")).interleave(gp.TFRecordDataset, cycle_length=1)

    good, (error,) = taken(dataset)

    assert good == GOOD[:4]
    assert error.file == os.fsdecode(path)
    text = str(error)
    assert text.isprintable()
    text.encode()
    assert f"at offset {len(STREAM) - len(frame(GOOD[4]))}: read: record 4" in text
    if os.fsdecode(name).isprintable():
        assert os.fsdecode(name) in text

    listed = dataset.with_options(Options(on_error="skip", error_manifest=str(manifest)))
    assert taken(listed) == (GOOD[:4], [])
    (line,) = manifest.read_bytes().splitlines()
    assert json.loads(line)["file"] == os.fsdecode(path)


# ---- files of our own kind that somebody has changed


@st.composite
def damages(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """A way to damage a file: cut, turn bits, put other bytes or numbers in, leave some out, say it twice."""
    kind = draw(st.sampled_from(["cut", "bit", "bytes", "number", "gap", "twice", "grow"]))
    where = draw(st.floats(0, 1, exclude_max=True))
    junk = draw(st.binary(min_size=1, max_size=24))
    number = draw(st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]))
    bit = draw(st.integers(0, 7))

    def damage(data: bytes) -> bytes:
        if not data:
            return junk
        at = int(where * len(data))
        match kind:
            case "cut":
                return data[:at]
            case "bit":
                return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
            case "bytes":
                return (data[:at] + junk + data[at + len(junk) :])[: len(data)]
            case "number":
                return (data[:at] + struct.pack("<Q", number) + data[at + 8 :])[: len(data)]
            case "gap":
                return data[:at] + data[at + len(junk) :]
            case "twice":
                return data[:at] + data[at // 2 :]
        return data + junk

    return damage


QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@QUICK
@given(damages=st.lists(damages(), min_size=1, max_size=3), sealed=st.booleans())
def test_no_damaged_index_is_believed(tmp_path: Path, damages: list[Callable[[bytes], bytes]], sealed: bool) -> None:
    path = tmp_path / "records"
    if not path.exists():
        path.write_bytes(b"".join(frame(bytes(n)) for n in range(40)))
    INDEXES.clear()
    saved = tmp_path / ".records.gpindex"
    saved.unlink(missing_ok=True)
    expected = record_index(str(path), "beside").offsets.tolist()
    data = saved.read_bytes()
    for damage in damages:
        data = damage(data)
    if sealed and len(data) > 16:  # somebody who knows the format
        from crc32c import crc32c

        data = data[:12] + struct.pack("<I", crc32c(data[16:])) + data[16:]
    saved.write_bytes(data)
    INDEXES.clear()

    with memory_below(8 * MEGABYTE):
        records, errors = taken(gp.TFRecordDataset(str(path), index="beside").shuffle(gp.ALL, seed=3))

    if sealed:  # offsets that make sense are believed, and then every record that is not there is an error
        assert len(records) + len(errors) >= 1
        assert set(records) <= {bytes(n) for n in range(40)}
    else:
        assert sorted(map(len, records)) == list(range(40))
        assert errors == []
        assert record_index(str(path), "beside").offsets.tolist() == expected


def numbers() -> Dataset:
    return Dataset.range(30).map(lambda x: (int(x), np.full(int(x), x), str(x).encode() * 5), traced=False)


def right(element: Any) -> bool:
    number, array, text = element
    return bool((array == number).all()) and len(array) == number and text == str(int(number)).encode() * 5


@QUICK
@given(damages=st.lists(damages(), min_size=1, max_size=3))
def test_a_damaged_cache_gives_what_was_in_it_or_errors(
    tmp_path: Path, damages: list[Callable[[bytes], bytes]]
) -> None:
    dataset = numbers().cache(str(tmp_path / "c"))
    assert len(list(dataset)) == 30
    (path,) = tmp_path.glob("c-*.elements")
    data = path.read_bytes()
    for damage in damages:
        data = damage(data)
    path.write_bytes(data)

    with memory_below(8 * MEGABYTE):
        good, errors = taken(dataset)

    assert all(map(right, good))
    assert {error.file for error in errors} <= {str(path)}
    assert [int(x[0]) for x in good] == sorted({int(x[0]) for x in good})
    if not errors:
        assert len(good) == 30
    path.unlink()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
@pytest.mark.parametrize("name", ["a FIFO", "a device without end", "a folder", "a link to itself"])
def test_what_lies_in_the_place_of_a_file_of_our_own_is_no_hang(tmp_path: Path, name: str) -> None:
    """Of saved elements that is an error; a cache and an index are made anew."""
    make, kind, reason = NO_FILES[name]
    numbers().save(str(tmp_path / "saved"))
    (manifest,) = [path for path in (tmp_path / "saved").iterdir() if path.suffix == ".json"]
    dataset = numbers().cache(str(tmp_path / "c"))
    assert len(list(dataset)) == 30
    (kept,) = tmp_path.glob("c-*.elements")
    (tmp_path / "records").write_bytes(STREAM)
    for path in (manifest, kept):
        path.unlink()
    for path in (manifest, kept, tmp_path / ".records.gpindex"):
        make(path)

    with pytest.raises(kind, match=re.escape(reason)) as caught:
        in_time(lambda: Dataset.load(str(tmp_path / "saved")))
    good, errors = taken(dataset)

    assert (caught.value.file, caught.value.stage) == (str(manifest), "load")
    assert (len(good), errors) == (30, [])
    assert in_time(lambda: len(record_index(str(tmp_path / "records"), "beside"))) == 5
