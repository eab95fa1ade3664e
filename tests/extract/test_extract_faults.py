"""Damaged files: every fault is one error in its place, with file, offset and reason, and the rest is read."""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from pathlib import Path
from typing import Any, cast

import pytest

from gpupipe.errors import DataError, DirectoryError, MissingFileError, RecordError
from gpupipe.extract.records.crc import masked_crc32c
from gpupipe.extract.records.framing import find_header
from gpupipe.extract.records.reference import HeaderWalker, Reference
from gpupipe.extract.records.tfrecord import RecordReader

FIVE = [b"zero", b"one" * 20, b"two" * 300, b"three", b"four" * 10]
OFFSETS = [sum(len(record) + 16 for record in FIVE[:k]) for k in range(6)]


def frame(record: bytes) -> bytes:
    length = struct.pack("<Q", len(record))
    return length + struct.pack("<I", masked_crc32c(length)) + record + struct.pack("<I", masked_crc32c(record))


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


@BLOCKS
@pytest.mark.parametrize("cut", range(1, 12))
def test_a_file_cut_inside_a_header_is_an_error(tmp_path: Path, cut: int, block: int) -> None:
    good, (error,) = read(tmp_path, STREAM[: OFFSETS[3] + cut], block=block)

    assert good == expected(0, 1, 2)
    assert error.offset == OFFSETS[3]
    assert f"record 3: the file ends inside the header of a record, which needs 12 bytes, {cut} are left" in str(error)


@BLOCKS
@pytest.mark.parametrize("missing", [1, 4, 5, 40, 44])
def test_a_file_cut_inside_a_payload_says_how_many_bytes_are_missing(tmp_path: Path, missing: int, block: int) -> None:
    good, (error,) = read(tmp_path, STREAM[:-missing], block=block)

    assert good == expected(0, 1, 2, 3)
    assert error.offset == OFFSETS[4]
    assert (
        f"record 4: its length exceeds the file, it needs 56 bytes, {56 - missing} are left, {missing} are missing"
        in (str(error))
    )


@BLOCKS
@pytest.mark.parametrize("at", [OFFSETS[2] + 12, OFFSETS[2] + 500, OFFSETS[3] - 1], ids=["first", "inside", "crc"])
def test_a_wrong_payload_costs_that_record_only(tmp_path: Path, at: int, block: int) -> None:
    good, (error,) = read(tmp_path, flipped(STREAM, at), block=block)

    assert good == expected(0, 1, 3, 4)
    assert error.offset == OFFSETS[2]
    assert "record 2: the CRC of the payload does not match" in str(error)


def test_payloads_are_not_checked_on_request_and_lengths_always_are(tmp_path: Path) -> None:
    data = flipped(STREAM, OFFSETS[2] + 12)

    good, bad = read(tmp_path, data, check_crc=False)
    assert len(good) == 5
    assert not bad

    good, bad = read(tmp_path, flipped(STREAM, OFFSETS[2]), check_crc=False)
    assert len(good) == 4
    assert len(bad) == 1


@BLOCKS
@pytest.mark.parametrize("byte", range(12))
@pytest.mark.parametrize("which", [0, 2])
def test_behind_a_damaged_header_the_next_good_one_is_found(tmp_path: Path, byte: int, which: int, block: int) -> None:
    good, (error,) = read(tmp_path, flipped(STREAM, OFFSETS[which] + byte), block=block)

    assert good == expected(*(k for k in range(5) if k != which))
    assert error.offset == OFFSETS[which]
    passed = OFFSETS[which + 1] - OFFSETS[which]
    assert f"record {which}: the length of a record and its CRC do not match; {passed} bytes are skipped" in str(error)
    assert ("is this a TFRecord file?" in str(error)) == (which == 0)


@BLOCKS
def test_a_damaged_last_header_has_no_record_behind_it(tmp_path: Path, block: int) -> None:
    good, (error,) = read(tmp_path, flipped(STREAM, OFFSETS[4]), block=block)

    assert good == expected(0, 1, 2, 3)
    assert "no further record follows" in str(error)


def test_the_search_reaches_over_blocks(tmp_path: Path) -> None:
    big = frame(os.urandom(9_000_000))

    good, (error,) = read(tmp_path, flipped(big, 0) + STREAM)

    assert good == [(len(big) + offset, record) for offset, record in expected(0, 1, 2, 3, 4)]
    assert f"{len(big)} bytes are skipped" in str(error)


def test_a_header_found_by_search_may_lie_across_two_windows() -> None:
    good = frame(b"x")
    for at in range((64 << 10) - 14, (64 << 10) + 3):
        data = b"\1" * at + good

        assert find_header(memoryview(data), 0, len(data)) == at


def test_a_header_whose_record_would_not_fit_is_not_found() -> None:
    data = header_of(1000) + frame(b"x")

    assert find_header(memoryview(data), 0, len(data)) == 12


@BLOCKS
@pytest.mark.parametrize("length", [1_000_000, 2**40, 2**63, 2**64 - 1, 2**64 - 16])
def test_a_length_beyond_the_file_allocates_nothing(tmp_path: Path, length: int, block: int) -> None:
    good, (error,) = read(tmp_path, frame(b"x") + header_of(length) + b"some bytes", block=block)

    assert good == [(0, b"x")]
    assert error.offset == 17
    assert f"record 1: its length exceeds the file, it needs {length + 16} bytes, 22 are left" in str(error)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"\xff\xd8\xff\xe0" + bytes(50), "a JPEG image"),
        (gzip.compress(STREAM), 'gzip data: pass compression_type="GZIP"'),
        (zlib.compress(STREAM), 'zlib data: pass compression_type="ZLIB"'),
        (zlib.compress(STREAM, 1), 'zlib data: pass compression_type="ZLIB"'),
        (b"PAR1" + bytes(50), "a Parquet file"),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "a PNG image"),
    ],
)
def test_a_file_of_another_format_is_recognised(tmp_path: Path, data: bytes, name: str) -> None:
    good, (error,) = read(tmp_path, data)

    assert not good
    assert f"a TFRecord file is needed, this is {name}" in str(error)
    ((_, walked),) = HeaderWalker(str(tmp_path / "bad.tfrecord"))
    assert str(walked) == str(error)


def test_text_is_no_tfrecord_file(tmp_path: Path) -> None:
    good, (error,) = read(tmp_path, b"label,file\n1,a.jpg\n" * 100)

    assert not good
    assert "is this a TFRecord file?" in str(error)


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
@pytest.mark.parametrize(("data", "looks"), [(STREAM, "is it not compressed"), (b"\xff\xd8\xff\xe0", "a JPEG image")])
def test_a_plain_file_opened_as_compressed_says_so(tmp_path: Path, compression: str, data: bytes, looks: str) -> None:
    good, (error,) = read(tmp_path, data, compression=compression)

    assert not good
    assert f"{compression} data is needed, the file does not start like it; " in str(error)
    assert looks in str(error)


@BLOCKS
@pytest.mark.parametrize("cut", [1, 6, 8])
def test_gzip_without_its_trailer_is_an_error_after_the_last_good_record(tmp_path: Path, cut: int, block: int) -> None:
    good, (error,) = read(tmp_path, gzip.compress(STREAM)[:-cut], compression="GZIP", block=block)

    assert good == expected(0, 1, 2, 3, 4)
    assert error.offset == OFFSETS[5]
    assert "the GZIP stream ends without its last bytes" in str(error)


@BLOCKS
@pytest.mark.parametrize("cut", [1, 4])
def test_zlib_without_its_trailer_is_an_error_after_the_last_good_record(tmp_path: Path, cut: int, block: int) -> None:
    good, (error,) = read(tmp_path, zlib.compress(STREAM)[:-cut], compression="ZLIB", block=block)

    assert good == expected(0, 1, 2, 3, 4)
    assert "the ZLIB stream ends without its last bytes" in str(error)


def test_a_wrong_gzip_checksum_is_an_error_after_the_last_good_record(tmp_path: Path) -> None:
    packed = gzip.compress(STREAM)

    good, (error,) = read(tmp_path, packed[:-8] + b"abcd" + packed[-4:], compression="GZIP")

    assert good == expected(0, 1, 2, 3, 4)
    assert "the GZIP data is damaged" in str(error)


def test_damage_inside_a_compressed_stream_keeps_what_comes_before(tmp_path: Path) -> None:
    records = [b" ".join(b"%d" % (j * j * (k + 1)) for j in range(1000)) for k in range(10)]
    packed = gzip.compress(b"".join(map(frame, records)))
    at = len(packed) // 2
    packed = packed[:at] + bytes(600) + packed[at + 600 :]

    good, bad = read(tmp_path, packed, compression="GZIP")

    assert [record for _, record in good][:4] == records[:4]
    assert {record for _, record in good} <= set(records)
    assert bad


def test_a_compressed_file_cut_in_the_middle_keeps_what_comes_before(tmp_path: Path) -> None:
    noise = [os.urandom(50_000) for _ in range(10)]
    packed = gzip.compress(b"".join(map(frame, noise)))

    good, (error,) = read(tmp_path, packed[: len(packed) // 2], compression="GZIP")

    assert [record for _, record in good] == noise[: len(good)]
    assert 3 <= len(good) <= 5
    assert error.offset == len(good) * 50_016


@BLOCKS
@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_faults_inside_a_compressed_stream_are_the_same(tmp_path: Path, compression: str, block: int) -> None:
    pack = gzip.compress if compression == "GZIP" else zlib.compress
    stream = flipped(flipped(STREAM, OFFSETS[0] + 3), OFFSETS[2] + 30)[:-7]

    plain = read(tmp_path, stream)
    packed = read(tmp_path, pack(stream), compression=compression, block=block)

    assert packed[0] == plain[0] == expected(1, 3)
    assert [str(error) for error in packed[1]] == [str(error) for error in plain[1]]
    assert len(plain[1]) == 3


def test_a_huge_length_in_a_compressed_stream_allocates_nothing(tmp_path: Path) -> None:
    good, (error,) = read(tmp_path, gzip.compress(frame(b"x") + header_of(2**40)), compression="GZIP")

    assert good == [(0, b"x")]
    assert "its length exceeds the file" in str(error)


def test_bytes_behind_a_zlib_stream_are_an_error(tmp_path: Path) -> None:
    good, (error,) = read(tmp_path, zlib.compress(STREAM) + b"more", compression="ZLIB")

    assert good == expected(0, 1, 2, 3, 4)
    assert "4 bytes follow the end of the ZLIB stream" in str(error)


@pytest.mark.parametrize(
    ("kind", "options"), [(RecordReader, {}), (RecordReader, {"compression": "GZIP"}), (HeaderWalker, {})]
)
def test_a_missing_file_is_one_error(tmp_path: Path, kind: Any, options: dict[str, Any]) -> None:
    ((offset, error),) = kind(str(tmp_path / "no"), **options)

    assert offset == 0
    assert isinstance(error, MissingFileError)
    assert isinstance(error, FileNotFoundError)
    assert str(tmp_path / "no") in str(error)


@pytest.mark.parametrize("kind", [RecordReader, HeaderWalker])
def test_a_directory_is_one_error(tmp_path: Path, kind: Any) -> None:
    ((_, error),) = kind(str(tmp_path))

    assert isinstance(error, DirectoryError)
    assert isinstance(error, IsADirectoryError)


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "shrinking"
    path.write_bytes(b"".join(frame(bytes(100_000)) for _ in range(100)))
    items = iter(RecordReader(str(path)))
    next(items)
    os.truncate(path, 2_000_000)

    left = list(items)

    assert len(left) < 25
    assert isinstance(left[-1][1], RecordError)
    assert "the file ends" in str(left[-1][1])


def test_walking_headers_meets_the_same_damage(tmp_path: Path) -> None:
    path = tmp_path / "bad"
    for data in (
        STREAM[: OFFSETS[3] + 5],
        STREAM[:-3],
        flipped(STREAM, OFFSETS[2] + 1),
        flipped(STREAM, 0),
        frame(b"x") + header_of(2**40),
    ):
        path.write_bytes(data)
        walked, whole = list(HeaderWalker(str(path))), list(RecordReader(str(path)))

        assert [offset for offset, _ in walked] == [offset for offset, _ in whole]
        for (_, reference), (_, record) in zip(walked, whole, strict=True):
            if isinstance(reference, Reference):
                assert reference.read() == bytes(cast("memoryview", record))
            else:
                assert str(reference) == str(record)


def test_many_damaged_headers_do_not_cost_a_block_each(tmp_path: Path) -> None:
    damaged = flipped(frame(b"x" * 50), 0)
    data = b"".join(damaged + frame(b"good") for _ in range(3000))

    good, bad = read(tmp_path, data)

    assert len(good) == len(bad) == 3000
