"""lost: two files, the first of which cannot be read from some place on; shared by the tests of lost files."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.reliability.faulty import Disk
from tests.reliability.record_files import SIZE, payloads, write

EACH = 600
RECORD = SIZE + 16
BROKEN = 298 * RECORD + 4
"""From this byte on, in the header of a record, the first file cannot be read for 5,000 bytes."""


FIRST, SECOND = (payloads(file, EACH) for file in range(2))


def of_kind(tmp_path: Path, kind: str) -> list[str]:
    """Two files of a kind."""
    paths = [tmp_path / "first", tmp_path / "second"]
    for path, records in zip(paths, (FIRST, SECOND), strict=True):
        write(path, kind, records)
    return list(map(str, paths))


def bad_sector(path: str, monkeypatch: pytest.MonkeyPatch, begin: int = BROKEN, n: int = 5000) -> Disk:
    """Some bytes of a file cannot be read."""

    def fails(number: int, start: int, stop: int) -> int | None:
        return errno.EIO if start < begin + n and stop > begin else None

    return Disk(path, fails).install(monkeypatch)


def dead(path: str, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Nothing of a file can be read."""
    return Disk(path, lambda number, start, stop: errno.EIO).install(monkeypatch)
