"""`gpupipe index`: a manifest that a chain is pointed at, and plain words when something is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gpupipe as gp
from gpupipe.cli import main
from tests.behaviour.manifests import written


@pytest.fixture
def data(tmp_path: Path) -> Path:
    manifest, _, _ = written(tmp_path / "data", [3, 4])
    Path(manifest).unlink()
    return tmp_path / "data"


def test_it_says_what_it_wrote_and_how_it_is_read(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):  # the second one replaces the first, which the wildcard does not take for data
        assert main(["index", str(data / "*")]) == 0

    out = capsys.readouterr().out.splitlines()
    assert out[2:] == out[:2]
    assert out[:2] == [
        f"2 files, 7 records: written to {data}/files.gpindex",
        f"read it with gp.TFRecordDataset.from_manifest('{data}/files.gpindex')",
    ]
    assert len(gp.TFRecordDataset.from_manifest(data / "files.gpindex")) == 7


def test_a_manifest_elsewhere_says_the_folder(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other").mkdir()
    out = str(tmp_path / "other" / "m")

    assert main(["index", str(data), "--out", out]) == 0

    line = capsys.readouterr().out.splitlines()[-1]
    assert line == f"read it with gp.TFRecordDataset.from_manifest({out!r}, folder='{data}/')"
    assert len(eval(line.removeprefix("read it with "), {"gp": gp})) == 7


def test_damaged_records_are_counted_and_json_is_one_object(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = data / "001.tfrecord"
    path.write_bytes(path.read_bytes()[:-2])
    assert main(["index", str(data)]) == 0
    assert "7 records, 1 of them damaged" in capsys.readouterr().out
    assert main(["index", str(data), "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert found == {
        "manifest": f"{data}/files.gpindex",
        "files": 2,
        "records": 7,
        "bytes": 7 * 19 - 2,
        "damaged": 1,
        "folder": f"{data}/",
    }
