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
import tarfile
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crc32c import crc32c

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
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.transform.machine import has_dali
from tests.chains.damage import events
from tests.fuzz.building import entry, field, frame
from tests.reliability.resume import in_time
from tests.tools.damage import broken

MEGABYTE = 1 << 20

needs_fifos = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    INDEXES.clear()
    LOCAL.close()
    yield
    INDEXES.clear()
    LOCAL.close()


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


def taken(dataset: Dataset) -> tuple[list[Any], list[DataError]]:
    """Everything there is, and the errors in between."""
    found = in_time(lambda: events(dataset))
    good = [bytes(x) if isinstance(x, memoryview) else x for x in found if not isinstance(x, DataError)]
    return good, [x for x in found if isinstance(x, DataError)]


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
    **{read: READERS[read] for read in ("records", "references")},
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


NEGATIVE = b"\xff" * 9 + b"\x01"
INT = field(3, field(1, b"\x05"))
HOSTILE_EXAMPLES = {
    "a negative length": b"\x0a" + NEGATIVE,
    "a negative length of a list": field(1, entry(b"x", b"\x1a" + NEGATIVE)),
    "a varint without an end": field(1, entry(b"x", field(3, field(1, b"\xff" * 5)))),
    "a feature that reaches over its entry": field(1, field(1, field(1, b"x") + b"\x12\x7f" + INT)),
    "groups": b"\x0b" * 100_000,
    "a length near 2^63": b"\x0a" + b"\xff" * 8 + b"\x7f",
    "too many": field(1, entry(b"x", field(3, field(1, b"\x05" * 100_000)))),
}


def label(record: Any) -> Any:
    return gp.io.parse_single_example(record, {"x": gp.io.FixedLenFeature((), "int64")})["x"]


@pytest.mark.parametrize("name", HOSTILE_EXAMPLES)
def test_a_hostile_example_is_an_error_of_its_record(tmp_path: Path, name: str) -> None:
    fine = encode_example({"x": 7})
    path = tmp_path / "examples"
    path.write_bytes(frame(fine) + frame(HOSTILE_EXAMPLES[name]) + frame(fine))
    dataset = gp.TFRecordDataset(str(path)).map(label)

    with memory_below(16 * MEGABYTE):
        good, errors = taken(dataset)

    assert [int(x) for x in good] == [7, 7]
    (error,) = errors
    assert isinstance(error, ParseError)
    assert (error.file, error.offset, error.stage) == (str(path), len(frame(fine)), "parse_single_example")
    assert [int(x) for x in skipped(dataset)] == [7, 7]
    assert len(str(error)) < 1000


@pytest.mark.parametrize(
    "record",
    [
        field(1, entry(b"x", INT)) * 100_000,
        field(1, entry(b"y", INT) * 100_000 + entry(b"x", INT)),
        field(1, entry(b"x", field(3, field(1, b"")) * 10_000 + INT)),
        field(15, b"") * 100_000 + field(1, entry(b"x", INT)),
    ],
    ids=["features", "others", "empty lists", "unknown fields"],
)
def test_what_is_repeated_is_read_as_protobuf_reads_it(tmp_path: Path, record: bytes) -> None:
    path = tmp_path / "examples"
    path.write_bytes(frame(record))

    good, errors = taken(gp.TFRecordDataset(str(path)).map(label))

    assert ([int(x) for x in good], errors) == ([5], [])


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


def tar_of(*members: tuple[str, int]) -> bytes:
    """An archive of members of zeros."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, size in members:
            info = tarfile.TarInfo(name)
            info.size = size
            archive.addfile(info, io.BytesIO(bytes(size)))
    return out.getvalue()


def test_the_members_of_a_sample_of_a_compressed_archive_have_a_bound_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflate, "_ANYWAY", 2 * MEGABYTE)
    names, path = "abcdef", tmp_path / "bomb.tar.gz"
    sound = [(f"{key}.{name}", size) for key, size in (("0", 300_000), ("2", 340_000)) for name in names]
    bomb = [(f"1.{name}", MEGABYTE) for name in names]
    path.write_bytes(gzip.compress(tar_of(*sound[:6], *bomb, *sound[6:])))
    dataset = gp.WebDataset(str(path), tuple(names), compression_type="GZIP")
    assert path.stat().st_size < 20_000

    with memory_below(14 * MEGABYTE):
        samples, errors = taken(dataset)

    assert [[len(part) for part in sample] for sample in samples] == [[300_000] * 6, [340_000] * 6]
    (error,) = errors
    assert (error.file, error.stage) == (str(path), "read")
    most = 2 * MEGABYTE
    assert f"up to 1.c have {3 * MEGABYTE} bytes, a sample of its archive may have {most}" in str(error)


def test_a_large_record_that_compresses_well_is_no_bomb(tmp_path: Path) -> None:
    path = tmp_path / "zeros"
    path.write_bytes(gzip.compress(frame(bytes(20 * MEGABYTE))))

    ((record,), errors) = taken(gp.TFRecordDataset([str(path)], compression_type="GZIP"))

    assert errors == []
    assert record == bytes(20 * MEGABYTE)


PACKED = gzip.compress(STREAM)
GZIPS = {  # and what is said; how a stream may end is in tests/extract/test_extract_faults.py
    "a member for each record": (b"".join(gzip.compress(frame(x)) for x in GOOD), None),
    "empty members": (gzip.compress(b"") * 3000 + PACKED + gzip.compress(b""), None),
    "zeros between": (PACKED + bytes(700_000) + PACKED, None),
    "zeros and garbage behind": (PACKED + bytes(9) + b"garbage", "7 bytes that are not GZIP data follow"),
    "cut in a second header": (PACKED + PACKED[:7], "the GZIP stream ends without its last bytes"),
}


@pytest.mark.parametrize("name", GZIPS)
def test_what_stands_in_a_gzip_file(tmp_path: Path, name: str) -> None:
    path, (data, reason) = tmp_path / "file.gz", GZIPS[name]
    path.write_bytes(data)

    records, errors = taken(gp.TFRecordDataset([str(path)], compression_type="GZIP"))

    whole = gzip.decompress(data) if reason is None else STREAM  # as Python reads it
    assert b"".join(map(frame, records)) == whole
    assert [(reason or "") in str(error) for error in errors] == [True] * (reason is not None)


# ---- images


def claiming(kind: str, width: int, height: int) -> bytes:
    """A small image whose header says another size."""
    image = np.zeros((16, 16, 3), np.uint8)
    data = bytearray(encoded(image, kind, orientation=2 if kind == "WEBP" else 1))
    match kind:
        case "JPEG":
            struct.pack_into(">HH", data, data.index(b"\xff\xc0") + 5, height, width)
        case "PNG":
            struct.pack_into(">II", data, 16, width, height)
            struct.pack_into(">I", data, 29, zlib.crc32(data[12:29]))
        case "BMP":
            struct.pack_into("<ii", data, 18, width, height)
        case "WEBP":
            data[24:30] = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
        case "GIF":
            struct.pack_into("<HH", data, 6, width, height)
    return bytes(data)


BOMBS = {
    "jpeg": claiming("JPEG", 30_000, 30_000),
    "a jpeg of no height": claiming("JPEG", 100, 0),
    "png": claiming("PNG", 30_000, 30_000),
    "a png of no width": claiming("PNG", 0, 5),
    "a png beyond what may be": claiming("PNG", 2**32 - 1, 2**32 - 1),
    "bmp": claiming("BMP", 30_000, 30_000),
    "a bmp of negative width": claiming("BMP", -5, 30_000),
    "the largest bmp": claiming("BMP", 2**31 - 1, -(2**31)),
    "webp": claiming("WEBP", 16_383, 16_383),
    "the largest webp": claiming("WEBP", 1 << 24, 1 << 24),
    "gif": claiming("GIF", 65_535, 65_535),
    "no bytes": b"",
}
PICTURE = encoded(picture(20, 20), "PNG")


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("backend", ["numpy", "dali"])
def test_an_image_of_absurd_size_is_an_error_of_its_record(tmp_path: Path, backend: str, name: str) -> None:
    if backend == "dali" and not has_dali():
        pytest.skip("DALI is not installed")
    path = tmp_path / "images"
    path.write_bytes(frame(PICTURE) + frame(BOMBS[name]) + frame(PICTURE))
    dataset = gp.TFRecordDataset(str(path)).map(lambda x: ops.resize(ops.decode_image(x, channels=3), (8, 8)))
    dataset = dataset.batch(2).with_options(Options(device="cpu", backend=backend))  # type: ignore[arg-type]

    with memory_below(48 * MEGABYTE):
        _, errors = taken(dataset)
        left = skipped(dataset)

    (error,) = errors
    assert isinstance(error, DecodeError)
    assert (error.file, error.offset) == (str(path), len(frame(PICTURE)))
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


@needs_fifos
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


@needs_fifos
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


@pytest.mark.parametrize("pattern", ["x" * 5000 + "/*", "y/" * 3000 + "*", "loop/*", "nowhere/*", "**/none"])
def test_a_pattern_that_leads_nowhere_matches_nothing(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "nowhere").symlink_to(tmp_path / "none")

    with pytest.raises(gp.PlanError, match="none match"):
        Dataset.list_files(str(tmp_path / pattern))


NAMES = {
    "a line break": b"two\nlines",
    "carriage return": b"over\rwritten",
    "a colour": b"\x1b[31mred\x1b[0m",
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
    fed = dataset.with_options(Options(on_error="skip", bad_records=str(manifest)))
    assert taken(fed) == (GOOD[:4], [])


# ---- files of our own kind that somebody has changed


def test_no_forged_index_is_believed(tmp_path: Path) -> None:
    """Offsets that make sense are believed, and then every record that is not there is an error."""
    path, saved = tmp_path / "records", tmp_path / ".records.gpindex"
    path.write_bytes(b"".join(frame(bytes(n)) for n in range(40)))
    record_index(str(path), "beside")
    good = saved.read_bytes()
    for seed in range(60):
        data = broken(good, np.random.default_rng(seed))
        data = data[:12] + struct.pack("<I", crc32c(data[16:])) + data[16:]  # somebody who knows the format
        saved.write_bytes(data)
        INDEXES.clear()

        with memory_below(8 * MEGABYTE):
            records, errors = taken(gp.TFRecordDataset(str(path), index="beside").shuffle(gp.ALL, seed=3))

        assert len(records) + len(errors) >= 1
        assert set(records) <= {bytes(n) for n in range(40)}


@needs_fifos
@pytest.mark.parametrize("name", ["a FIFO", "a device without end", "a folder", "a link to itself"])
def test_what_lies_in_the_place_of_a_file_of_our_own_is_no_hang(tmp_path: Path, name: str) -> None:
    """Of saved elements that is an error; a cache and an index are made anew."""
    make, kind, reason = NO_FILES[name]
    numbers = Dataset.range(30).map(lambda x: str(x).encode() * 5, traced=False)
    numbers.save(str(tmp_path / "saved"))
    (manifest,) = [path for path in (tmp_path / "saved").iterdir() if path.suffix == ".json"]
    dataset = numbers.cache(str(tmp_path / "c"))
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
    assert not os.path.isfile("/dev/zero")  # where the link to a device leads


# ---- lengths that are right, and that nobody can want in memory

LARGEST = Options(max_record=1000, on_error="skip")


def write_lengths(folder: Path) -> str:
    path = folder / "lengths.tfrecord"
    path.write_bytes(frame(b"first") + frame(b"x" * 1001) + frame(b"y" * 1000) + frame(b"last"))
    return str(path)


@pytest.mark.parametrize("how", ["in order", "block", "by index", "references", "payloads", "GZIP"])
def test_a_record_longer_than_the_option_is_a_bad_one(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_lengths(tmp_path)
    if how == "block":
        monkeypatch.setattr(tfrecord, "BLOCK", 64)
        monkeypatch.setattr("gpupipe.flow.sources.readers.LOCAL_BLOCK", 64)
    dataset: Dataset = gp.TFRecordDataset([path])
    if how == "GZIP":
        monkeypatch.setattr(inflate, "_ANYWAY", 1000)
        Path(path).write_bytes(gzip.compress(Path(path).read_bytes()))
        dataset = gp.TFRecordDataset([path], compression_type="GZIP")
    if how == "by index":
        dataset = dataset[::-1]
    if how in ("references", "payloads"):
        dataset = dataset.shuffle(2 if how == "references" else gp.ALL)

    items = iter(dataset.with_options(LARGEST))
    found = sorted(bytes(item) for item in items)

    assert found == [b"first", b"last", b"y" * 1000]
    assert items.left_out == 1
    assert "1000 bytes" in items.errors[0].reason and "1001" in items.errors[0].reason
    assert items.errors[0].offset == 21


def test_members_and_whole_files_have_that_limit_too(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(tar_of(("0.bin", 10), ("1.bin", 1001), ("2.bin", 1000)))
    (tmp_path / "1000").write_bytes(bytes(1000))
    (tmp_path / "1001").write_bytes(bytes(1001))
    whole = Dataset.from_tensor_slices([str(tmp_path / "1000"), str(tmp_path / "1001")]).map(gp.io.read_file)

    for dataset in (gp.WebDataset(str(path), "bin"), gp.WebDataset(str(path), "bin").shuffle(gp.ALL), whole):
        items = iter(dataset.with_options(LARGEST))
        sizes = sorted(len(item) for item in items)

        assert sizes in ([10, 1000], [1000])
        assert items.left_out == 1 and "1001" in items.errors[0].reason


def test_no_memory_for_a_record_is_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(size: int) -> bytearray:
        raise MemoryError

    monkeypatch.setattr("gpupipe.extract.storage.longest.bytearray", none, raising=False)
    monkeypatch.setattr("gpupipe.flow.sources.readers.LOCAL_BLOCK", 64)

    items = iter(
        gp.TFRecordDataset([write_lengths(tmp_path)]).with_options(Options(on_error="skip", lost_files="skip"))
    )

    assert b"first" in [bytes(item) for item in items]
    assert "bytes of memory" in items.errors[0].reason
