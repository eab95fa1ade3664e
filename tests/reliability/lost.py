"""lost: two files, the first of which cannot be read from some place on; shared by the tests of lost files."""

from __future__ import annotations

import errno
import gzip
from pathlib import Path
from typing import Any

import pytest

import gpupipe as gp
from gpupipe import Dataset, Options
from gpupipe.extract.records.writer import TFRecordWriter
from tests.reliability.faulty import Disk
from tests.reliability.test_failed_reads import KINDS

EACH, SIZE = 600, 3000
RECORD = SIZE + 16
BROKEN = 298 * RECORD + 4
"""From this byte on, in the header of a record, the first file cannot be read for 5,000 bytes."""


def payload(file: int, i: int) -> bytes:
    return f"{file:02d}.{i:05d}".encode().ljust(SIZE, b".")


FIRST, SECOND = ([payload(file, i) for i in range(EACH)] for file in range(2))


def records_of(path: Path, records: list[bytes]) -> None:
    with TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)


def of_kind(tmp_path: Path, kind: str) -> list[str]:
    """Two files of a kind."""
    paths = [tmp_path / "first", tmp_path / "second"]
    for path, records in zip(paths, (FIRST, SECOND), strict=True):
        if kind in ("records", "gzip"):
            records_of(path, records)
        elif kind == "lines":
            path.write_bytes(b"".join(record + b"\n" for record in records))
        else:
            path.write_bytes(b"h" * 100 + b"".join(records) + b"f" * 10)
        if kind == "gzip":
            path.write_bytes(gzip.compress(path.read_bytes(), 0))
    return list(map(str, paths))


def bad_sector(path: str, monkeypatch: pytest.MonkeyPatch, begin: int = BROKEN, n: int = 5000) -> Disk:
    """Some bytes of a file cannot be read."""

    def fails(number: int, start: int, stop: int) -> int | None:
        return errno.EIO if start < begin + n and stop > begin else None

    return Disk(path, fails).install(monkeypatch)


def dead(path: str, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Nothing of a file can be read."""
    return Disk(path, lambda number, start, stop: errno.EIO).install(monkeypatch)


def chain(paths: list[str], kind: str = "records", calls: int | None = None, **options: Any) -> Dataset:
    made = Dataset.from_tensor_slices(paths)
    if kind == "fixed":
        made = made.interleave(
            lambda name: gp.FixedLengthRecordDataset(name, SIZE, 100, 10), cycle_length=1, num_parallel_calls=calls
        )
    else:
        made = made.interleave(KINDS[kind][1], cycle_length=1, num_parallel_calls=calls)
    return made.with_options(Options(**options))
