"""Fixed-length records: header, body, footer, and files that are not made of these."""

from __future__ import annotations

import gzip
import itertools
import zlib
from pathlib import Path
from typing import Any

import pytest

from gpupipe.errors import DataError, RecordError
from gpupipe.extract.records.fixed import FixedReader


def read(path: Path, data: bytes, record: int, header: int = 0, footer: int = 0, **options: Any) -> list[Any]:
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
            got = read(
                tmp_path / "a", packed(data, compression), record, header, footer, compression=compression, block=block
            )

            assert got == [(header + record * i, body[record * i : record * (i + 1)]) for i in range(count)]


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_of_a_compressed_file_the_whole_records_come_first(tmp_path: Path, compression: str) -> None:
    for block in (1, 1000):
        *records, (offset, error) = read(
            tmp_path / "a", packed(b"HHaabbccd" + b"FFF", compression), 2, 2, 3, compression=compression, block=block
        )

        assert records == [(2, b"aa"), (4, b"bb"), (6, b"cc")]
        assert isinstance(error, RecordError)
        assert offset == error.offset == 8
        assert "got 12 bytes: a body of 7" in str(error)


@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.parametrize("data", [b"", b"H", b"HHHHHFF"])
def test_a_file_shorter_than_header_and_footer_is_an_error(tmp_path: Path, data: bytes, compression: str) -> None:
    ((_, error),) = read(tmp_path / "a", packed(data, compression), 2, 5, 3, compression=compression)

    assert isinstance(error, RecordError)
    assert f"got {len(data)} bytes: less than header and footer" in str(error)


def test_an_enormous_header_or_record_costs_no_memory(tmp_path: Path) -> None:
    for compression in ("", "GZIP"):
        data = packed(b"abc", compression)
        for record, header, footer in [(1, 1 << 60, 0), (1 << 60, 0, 0), (1, 0, 1 << 60)]:
            ((_, error),) = read(tmp_path / "a", data, record, header, footer, compression=compression)
            assert isinstance(error, RecordError)


def test_damage_of_the_compression_ends_the_file(tmp_path: Path) -> None:
    data = gzip.compress(bytes(range(256)) * 40)

    *records, (_, error) = read(tmp_path / "a", data[:-30], 4, compression="GZIP", block=64)

    assert isinstance(error, RecordError)
    assert [record for _, record in records] == [
        bytes(range(i % 256, i % 256 + 4)) for i in range(0, 4 * len(records), 4)
    ]
