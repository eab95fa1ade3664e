"""The suite of cold reads: what it writes down, and that all contestants read every record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.equal import UnequalWork
from benchmarks.suites import cold, cold_reads


def test_a_small_run_writes_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()

    path = cold.cold(tmp_path / "out", tmp_path, ("gpupipe",), records=32, shuffle=8, pairs=1, threads=1)

    found = json.loads(path.read_text())
    assert found["benchmark"] == "cold"
    assert (found["settings"]["records"], found["settings"]["shuffle"]) == (32, 8)
    (own,), (plain,) = found["runs"]["gpupipe"], found["runs"]["plain beside gpupipe"]
    assert own["bytes"] == 32 * cold.BYTES < plain["bytes"]
    assert found["summary"]["gpupipe"]["rate_ratio"]["count"] == 1
    assert "a first epoch from disk" in capsys.readouterr().out


def test_a_contestant_that_cannot_run_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cold, "_run_of", lambda kind, *_: "it is not there" if kind == "tfdata" else _run())

    path = cold.cold(tmp_path, tmp_path, ("tfdata", "gpupipe"), records=16, shuffle=4, pairs=2, threads=1)

    assert json.loads(path.read_text())["not_measured"] == {"tfdata": "it is not there"}
    assert "tfdata: it is not there" in capsys.readouterr().out


def _run() -> dict[str, float]:
    return {"seconds": 1.0, "cpu_s": 0.5, "bytes": 10, "of_disk": 10}


def test_figures_of_memory_are_said_to_be_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cold, "_run_of", lambda *_: {**_run(), "of_disk": 0})

    path = cold.cold(tmp_path, tmp_path, ("gpupipe",), records=16, shuffle=4, pairs=1, threads=1)

    assert json.loads(path.read_text())["settings"]["of_disk"] is False
    assert "these are figures of memory" in capsys.readouterr().out


def test_an_unknown_contestant_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnequalWork, match="cold needs contestants out of plain, gpupipe, tfdata, got plain"):
        cold.cold(tmp_path, tmp_path, ("plain",), records=16, shuffle=4, pairs=1, threads=1)


def test_dropping_pages_changes_no_byte(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(3 << 20))

    cold_reads.drop_pages([str(path)])

    assert sum(cold_reads.plain([str(path)], 0, 1)) == 3 << 20
