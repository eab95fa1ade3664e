"""Lines of text and records of a fixed length: where they begin and end, in blocks of any size, and what is none."""

from __future__ import annotations

import gzip
import itertools
import random
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gpupipe.errors import DataError, RecordError
from gpupipe.extract.records.fixed import FixedReader
from gpupipe.extract.records.lines import LONGEST, LineReader


def lines_of(path: Path, data: bytes, **options: Any) -> list[tuple[int, Any]]:
    path.write_bytes(data)
    return list(LineReader(str(path), **options))


def model(data: bytes) -> list[tuple[int, bytes]]:
    lines, at = [], 0
    parts = data.split(b"\n")
    for i, part in enumerate(parts):
        if i + 1 < len(parts) or part not in (b"", b"\r"):
            lines.append((at, part[:-1] if part.endswith(b"\r") else part))
        at += len(part) + 1
    return lines


@pytest.mark.parametrize("seed", range(20))
def test_any_text_in_blocks_of_any_size(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    data = bytes(rng.choices(b"a\0\xff\r\n", k=rng.randrange(400 if seed % 2 else 5)))

    assert lines_of(tmp_path / "a", data, block=rng.randrange(1, 50)) == model(data)


def test_a_carriage_return_before_a_newline_belongs_to_it_and_any_other_is_data(tmp_path: Path) -> None:
    found = lines_of(tmp_path / "a", b"a\rb\r\n\r\nc\r\r\n", block=3)

    assert found == [(0, b"a\rb"), (5, b""), (7, b"c\r")]


@pytest.mark.parametrize("block", [1, 2, 100])
def test_a_line_that_is_the_beginning_of_an_end_is_none(tmp_path: Path, block: int) -> None:
    """As for TensorFlow: what remains of the line without it is empty, and no newline ends it."""
    assert lines_of(tmp_path / "a", b"a\r\n\r", block=block) == [(0, b"a")]
    assert lines_of(tmp_path / "b", b"\r", block=block) == []
    assert lines_of(tmp_path / "c", b"a\nb\r", block=block) == [(0, b"a"), (2, b"b")]


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_offsets_are_those_of_the_text_not_of_the_compressed_file(tmp_path: Path, compression: str) -> None:
    data = b"".join(b"line %d\r\n" % i for i in range(5000)) + b"last"
    packed = gzip.compress(data) if compression == "GZIP" else zlib.compress(data)

    assert lines_of(tmp_path / "a", packed, compression=compression, block=777) == model(data)


def test_the_text_behind_damage_of_the_compression_is_an_error_and_the_end(tmp_path: Path) -> None:
    text = bytes(random.Random(0).choices(b"abcdefgh\n", k=50_000))
    data = gzip.compress(text)

    *lines, (offset, error) = lines_of(tmp_path / "a", data[: len(data) // 2], compression="GZIP")

    assert isinstance(error, RecordError)
    assert "GZIP stream ends without its last bytes" in str(error)
    assert lines == model(text)[: len(lines)]
    assert lines
    assert offset == error.offset == lines[-1][0] + len(lines[-1][1]) + 1


@pytest.mark.parametrize("block", [3, 16, 1000])
@pytest.mark.parametrize("length", [21, 22, 23, 40, 400])
def test_a_line_above_the_limit_is_one_error_and_the_rest_follows(tmp_path: Path, length: int, block: int) -> None:
    data = b"first\n" + b"x" * length + b"\nthird\n" + b"y" * 20 + b"\r\nlast"

    first, (offset, error), *rest = lines_of(tmp_path / "a", data, longest=20, block=block)

    assert first == (0, b"first")
    assert offset == error.offset == 6
    assert isinstance(error, RecordError)
    assert "a line may have 20 bytes, this one has" in str(error)
    assert str(tmp_path / "a") in str(error)
    assert rest == [(length + 7, b"third"), (length + 13, b"y" * 20), (length + 35, b"last")]
    ((_, error),) = lines_of(tmp_path / "a", b"x" * length, longest=20, block=block)
    assert isinstance(error, RecordError)
    assert LONGEST == 64 << 20


def test_threads_read_ahead_and_nothing_changes(tmp_path: Path) -> None:
    data = b"".join(b"%d\n" % i for i in range(3000))
    with ThreadPoolExecutor(2) as pool:
        assert lines_of(tmp_path / "a", data, block=100, readers=pool) == model(data)
        with closing(LineReader(str(tmp_path / "a"), block=100, readers=pool)) as reader:
            assert next(iter(reader)) == (0, b"0")


# ---- records of a fixed length


def fixed(path: Path, data: bytes, record: int, header: int = 0, footer: int = 0, **options: Any) -> list[Any]:
    path.write_bytes(data)
    reader = FixedReader(str(path), record_bytes=record, header_bytes=header, footer_bytes=footer, **options)
    return [(at, item if isinstance(item, DataError) else bytes(item)) for at, item in reader]


def packed(data: bytes, compression: str) -> bytes:
    return gzip.compress(data) if compression == "GZIP" else zlib.compress(data) if compression else data


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize(("record", "header", "footer"), [*itertools.product([1, 7, 100], [0, 9], [0, 9])])
def test_records(tmp_path: Path, record: int, header: int, footer: int, compression: str) -> None:
    for count in (0, 1, 5):
        body = bytes(i % 251 for i in range(record * count))
        data = b"H" * header + body + b"F" * footer
        for block in (1, 10, 1000):
            got = fixed(
                tmp_path / "a", packed(data, compression), record, header, footer, compression=compression, block=block
            )

            assert got == [(header + record * i, body[record * i : record * (i + 1)]) for i in range(count)]


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_of_a_compressed_file_the_whole_records_come_first(tmp_path: Path, compression: str) -> None:
    for block in (1, 1000):
        *records, (offset, error) = fixed(
            tmp_path / "a", packed(b"HHaabbccd" + b"FFF", compression), 2, 2, 3, compression=compression, block=block
        )

        assert records == [(2, b"aa"), (4, b"bb"), (6, b"cc")]
        assert isinstance(error, RecordError)
        assert offset == error.offset == 8
        assert "got 12 bytes: a body of 7" in str(error)


@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.parametrize("data", [b"", b"H", b"HHHHHFF"])
def test_a_file_shorter_than_header_and_footer_is_an_error(tmp_path: Path, data: bytes, compression: str) -> None:
    ((_, error),) = fixed(tmp_path / "a", packed(data, compression), 2, 5, 3, compression=compression)

    assert isinstance(error, RecordError)
    assert f"got {len(data)} bytes: less than header and footer" in str(error)


def test_an_enormous_header_or_record_costs_no_memory(tmp_path: Path) -> None:
    for compression in ("", "GZIP"):
        data = packed(b"abc", compression)
        for record, header, footer in [(1, 1 << 60, 0), (1 << 60, 0, 0), (1, 0, 1 << 60)]:
            ((_, error),) = fixed(tmp_path / "a", data, record, header, footer, compression=compression)
            assert isinstance(error, RecordError)


def test_damage_of_the_compression_ends_the_file(tmp_path: Path) -> None:
    data = gzip.compress(bytes(range(256)) * 40)

    *records, (_, error) = fixed(tmp_path / "a", data[:-30], 4, compression="GZIP", block=64)

    assert isinstance(error, RecordError)
    assert [record for _, record in records] == [
        bytes(range(i % 256, i % 256 + 4)) for i in range(0, 4 * len(records), 4)
    ]
