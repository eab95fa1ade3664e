"""Records behind a shuffle are asked for ahead while they come from a disk, and not while they come from memory."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

import gpupipe as gp
from gpupipe.extract.records.reference import Reference, read_ahead, read_many
from gpupipe.extract.records.walk import walk_headers
from gpupipe.extract.storage import files
from gpupipe.flow.maps import read_payloads

Ranges = list[tuple[str, int, int]]


def _written(folder: Path, count: int, size: int = 9_000) -> str:
    path = folder / "0.tfrecord"
    with gp.io.TFRecordWriter(path) as out:
        for _ in range(count):
            out.write(os.urandom(size))
    return str(path)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Ranges:
    found: Ranges = []
    ahead = files.LocalStorage.ahead

    def noted(self: Any, name: str, offset: int, n: int) -> None:
        found.append((name, offset, n))
        ahead(self, name, offset, n)

    monkeypatch.setattr(files.LocalStorage, "ahead", noted)
    return found


def _slowly(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    def slow(references: Any) -> Any:
        time.sleep(seconds * len(references))
        return read_many(references)

    monkeypatch.setattr(read_payloads, "read_many", slow)


def test_each_record_is_asked_for_once_while_reading_is_slow(
    tmp_path: Path, asked: Ranges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_payloads, "COLD", 2)
    _slowly(monkeypatch, 2 * read_payloads.SLOW)
    path = _written(tmp_path, 200)

    assert len(list(gp.TFRecordDataset(path).shuffle(50))) == 200

    payloads = [one for one in asked if one[2] > 12]
    assert sorted(payloads) == [(path, n * 9_016, 9_016) for n in range(200)]


def test_what_comes_from_memory_is_soon_no_longer_asked_for(
    tmp_path: Path, asked: Ranges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_payloads, "COLD", 2)
    monkeypatch.setattr(read_payloads, "SLOW", 10.0)
    path = _written(tmp_path, 200)

    assert len(list(gp.TFRecordDataset(path).shuffle(50))) == 200

    assert len([one for one in asked if one[2] > 12]) == 2 * read_payloads.AT_ONCE


def test_the_next_header_is_asked_for_where_records_are_large(tmp_path: Path, asked: Ranges) -> None:
    path = _written(tmp_path, 5, 70_000)

    list(walk_headers(path))

    assert asked == [(path, n * 70_016, 12) for n in range(1, 5)]


def test_a_file_that_cannot_be_asked_for_fails_when_it_is_read(tmp_path: Path) -> None:
    missing = Reference(str(tmp_path / "none"), 0, 9)

    read_ahead([missing])

    with pytest.raises(gp.DataError, match="no such file"):
        missing.read()
