"""How much of a file is read at once: what the reader of its format finds best, or one request to a remote storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gpupipe as gp
from gpupipe.extract.records.tfrecord import RecordReader
from gpupipe.flow.sources import readers


@pytest.mark.parametrize(("remote", "block"), [(False, 1 << 20), (True, readers.REMOTE_BLOCK)])
def test_records_are_read_a_megabyte_at_once_and_remote_ones_four(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: bool, block: int
) -> None:
    path = tmp_path / "a.tfrecord"
    with gp.io.TFRecordWriter(str(path)) as writer:
        writer.write(b"one")
    blocks: list[int] = []

    def noted(*args: Any, **options: Any) -> Any:
        reader = RecordReader(*args, **options)
        blocks.append(reader.block)
        return reader

    monkeypatch.setattr("gpupipe.flow.sources.records.RecordReader", noted)
    monkeypatch.setattr(readers, "is_url", lambda path: remote)

    assert list(gp.TFRecordDataset([str(path)])) == [b"one"]
    assert blocks == [block]
