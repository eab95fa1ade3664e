"""Damaged files: every fault is one error in its place, with file, offset and reason, and the rest is read."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator
from functools import partial, reduce
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, TFRecordDataset
from gpupipe.errors import DataError, DirectoryError, MissingFileError, RecordError
from gpupipe.extract.records.crc import masked_crc32c
from gpupipe.extract.records.reference import HeaderWalker, Reference
from gpupipe.extract.records.tfrecord import BLOCK, RecordReader
from tests.behaviour.model import outcomes
from tests.fuzz.building import frame

FIVE = [b"zero", b"one" * 20, b"two" * 300, b"three", b"four" * 10]
OFFSETS = [sum(len(record) + 16 for record in FIVE[:k]) for k in range(6)]


STREAM = b"".join(map(frame, FIVE))


def header_of(length: int) -> bytes:
    head = struct.pack("<Q", length)
    return head + struct.pack("<I", masked_crc32c(head))


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]


def read(tmp_path: Path, data: bytes, **options: Any) -> tuple[list[tuple[int, bytes]], list[DataError]]:
    """Read a file of `data`: the good records, and the errors, which must name the file, their offset and the stage."""
    path = tmp_path / "bad.tfrecord"
    path.write_bytes(data)
    good, bad = [], []
    for offset, record in RecordReader(str(path), **options):
        if isinstance(record, DataError):
            assert record.file == str(path)
            assert record.offset == offset
            assert record.stage == "read"
            bad.append(record)
        else:
            good.append((offset, bytes(record)))
    return good, bad


def expected(*indices: int) -> list[tuple[int, bytes]]:
    return [(OFFSETS[k], FIVE[k]) for k in indices]


BLOCKS = pytest.mark.parametrize("block", [64, 1 << 20])


def faults() -> Iterator[tuple[bytes, list[int], int, str]]:
    """Damaged files: bytes, which records are left, where the error is and what it says."""
    for cut in (1, 8, 11):
        text = f"record 3: the file ends inside the header of a record, which needs 12 bytes, {cut} are left"
        yield STREAM[: OFFSETS[3] + cut], [0, 1, 2], OFFSETS[3], text
    for n in (1, 5, 44):
        text = f"record 4: its length exceeds the file, it needs 56 bytes, {56 - n} are left, {n} are missing"
        yield STREAM[:-n], [0, 1, 2, 3], OFFSETS[4], text
    for at in (OFFSETS[2] + 12, OFFSETS[2] + 500, OFFSETS[3] - 1):
        yield flipped(STREAM, at), [0, 1, 3, 4], OFFSETS[2], "record 2: the CRC of the payload does not match"
    for k, byte in product((0, 2), (0, 7, 8, 11)):
        text = f"record {k}: the length of a record and its CRC do not match; {len(FIVE[k]) + 16} bytes are skipped"
        yield flipped(STREAM, OFFSETS[k] + byte), [i for i in range(5) if i != k], OFFSETS[k], text
    yield flipped(STREAM, OFFSETS[4]), [0, 1, 2, 3], OFFSETS[4], "no further record follows"
    for length in (1_000_000, 2**63, 2**64 - 16):
        text = f"record 5: its length exceeds the file, it needs {length + 16} bytes, 22 are left"
        yield STREAM + header_of(length) + b"some bytes", [0, 1, 2, 3, 4], OFFSETS[5], text


@BLOCKS
@pytest.mark.parametrize(("data", "kept", "offset", "reason"), list(faults()))
def test_a_fault_is_one_error_in_its_place_and_the_rest_is_read_and_walked(
    tmp_path: Path, data: bytes, kept: list[int], offset: int, reason: str, block: int
) -> None:
    good, (error,) = read(tmp_path, data, block=block)

    assert good == expected(*kept)
    assert error.offset == offset
    assert reason in str(error)
    assert ("is this a TFRecord file?" in str(error)) == (offset == 0)
    walked = dict(HeaderWalker(str(tmp_path / "bad.tfrecord")))
    found = walked.pop(offset)
    if isinstance(found, Reference):
        with pytest.raises(RecordError, match="the CRC of the payload does not match"):
            found.read()
    else:
        assert str(found) == str(error)
    assert [(at, cast("Reference", reference).read()) for at, reference in walked.items()] == expected(*kept)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"\xff\xd8\xff\xe0" + bytes(50), "a JPEG image"),
        (gzip.compress(STREAM, mtime=0), 'gzip data: pass compression_type="GZIP"'),
        (zlib.compress(STREAM), 'zlib data: pass compression_type="ZLIB"'),
        (b"PAR1" + bytes(50), "a Parquet file"),
    ],
)
def test_a_file_of_another_format_is_recognised(tmp_path: Path, data: bytes, name: str) -> None:
    good, (error,) = read(tmp_path, data)

    assert not good
    assert f"a TFRecord file is needed, this is {name}" in str(error)
    ((_, walked),) = HeaderWalker(str(tmp_path / "bad.tfrecord"))
    assert str(walked) == str(error)


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
@pytest.mark.parametrize(("data", "looks"), [(STREAM, "is it not compressed"), (b"\xff\xd8\xff\xe0", "a JPEG image")])
def test_a_plain_file_opened_as_compressed_says_so(tmp_path: Path, compression: str, data: bytes, looks: str) -> None:
    good, (error,) = read(tmp_path, data, compression=compression)

    assert not good
    assert f"{compression} data is needed, the file does not start like it; " in str(error)
    assert looks in str(error)


PACKED = gzip.compress(STREAM, mtime=0)


@BLOCKS
@pytest.mark.parametrize(
    ("data", "compression", "reason"),
    [
        (PACKED[:-1], "GZIP", "the GZIP stream ends without its last bytes"),
        (PACKED[:-8], "GZIP", "the GZIP stream ends without its last bytes"),
        (PACKED[:-8] + b"abcd" + PACKED[-4:], "GZIP", "the GZIP data is damaged"),
        (zlib.compress(STREAM)[:-1], "ZLIB", "the ZLIB stream ends without its last bytes"),
        (zlib.compress(STREAM)[:-4], "ZLIB", "the ZLIB stream ends without its last bytes"),
        (zlib.compress(STREAM) + b"more", "ZLIB", "4 bytes follow the end of the ZLIB stream"),
        (gzip.compress(STREAM + header_of(2**40), mtime=0), "GZIP", "its length exceeds the file"),
    ],
)
def test_a_compressed_stream_with_a_wrong_end_gives_all_records_and_an_error(
    tmp_path: Path, data: bytes, compression: str, reason: str, block: int
) -> None:
    good, (error,) = read(tmp_path, data, compression=compression, block=block)

    assert good == expected(0, 1, 2, 3, 4)
    assert error.offset == OFFSETS[5]
    assert reason in str(error)


@pytest.mark.parametrize("kind", [RecordReader, partial(RecordReader, compression="GZIP"), HeaderWalker])
def test_a_missing_file_or_a_directory_is_one_error(tmp_path: Path, kind: Any) -> None:
    for path, error in ((tmp_path / "no", MissingFileError), (tmp_path, DirectoryError)):
        assert [(offset, type(found)) for offset, found in kind(str(path))] == [(0, error)]


# ---- what is read behind damage


RECORDS = [b"%d" % i * (3 * i + 1) for i in range(12)]


STARTS = [sum(len(record) + 16 for record in RECORDS[:i]) for i in range(13)]


WHOLE = b"".join(map(frame, RECORDS))
HEADERS = reduce(flipped, (STARTS[2], STARTS[7] + 9, STARTS[8] + 1), WHOLE)  # two of them next to each other
PAYLOADS = reduce(flipped, (STARTS[2] + 12, STARTS[7] + 20, STARTS[8] + 12), WHOLE)
LAST = flipped(WHOLE, STARTS[11] + 3)

CHAINS: dict[str, Any] = {
    "plain": lambda path: TFRecordDataset(path),
    "reads ahead": lambda path: TFRecordDataset([path], num_parallel_reads=2),
    "interleave": lambda path: Dataset.list_files(path).interleave(TFRecordDataset, num_parallel_calls=2),
    "references": lambda path: TFRecordDataset(path).skip(0).shuffle(1),
    "shuffle": lambda path: TFRecordDataset(path).shuffle(5),
    "batches": lambda path: TFRecordDataset(path).batch(1).unbatch(),
}


@pytest.mark.parametrize("make", CHAINS.values(), ids=CHAINS.keys())
@pytest.mark.parametrize(("data", "bad"), [(HEADERS, [2, 7, 8]), (PAYLOADS, [2, 7, 8]), (LAST, [11])])
def test_the_rest_of_the_file_is_read(tmp_path: Path, make: Any, data: bytes, bad: list[int]) -> None:
    (tmp_path / "a").write_bytes(data)
    dataset = make(str(tmp_path / "a"))
    good = sorted(record for i, record in enumerate(RECORDS) if i not in bad)

    skipped = dataset.with_options(Options(on_error="skip")).iterator()
    assert sorted(skipped) == good

    seen = outcomes(dataset)
    errors = seen.count("error")
    assert sorted(record for record in seen if record != "error") == good
    # One error for each bad record; two damaged headers in a row are passed over at once.
    assert errors == (len(bad) - 1 if data is HEADERS else len(bad))
    assert skipped.left_out == errors


@pytest.mark.parametrize(
    "edge",
    [17 + 256, 64 << 10, BLOCK - BLOCK // 4, BLOCK],
    ids=["first step", "first search", "first part of a block", "block"],
)
def test_a_header_is_found_wherever_a_part_of_the_search_ends(tmp_path: Path, edge: int) -> None:
    """Every way of reading searches in parts, the first of which ends here: a header may lie in two of them."""
    path = tmp_path / "a"
    for start in range(edge - 14, edge + 20):
        data = bytearray(frame(b"a") + frame(bytes(start - 33)) + frame(b"b"))
        data[17] ^= 1  # the second header
        path.write_bytes(data)
        (tmp_path / "gz").write_bytes(gzip.compress(data, 1))

        ways = RecordReader(str(path)), HeaderWalker(str(path)), RecordReader(str(tmp_path / "gz"), compression="GZIP")
        found = [[at for at, item in way if not isinstance(item, gp.DataError)] for way in ways]

        assert found == [[0, start]] * 3


def test_an_endless_run_of_zeros_is_one_error_not_one_for_each_byte(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(frame(b"x") + bytes(100_000) + frame(b"y"))

    assert outcomes(TFRecordDataset(str(tmp_path / "a"))) == [b"x", "error", b"y"]
