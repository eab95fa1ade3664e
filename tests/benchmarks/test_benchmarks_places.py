"""Batches by their number: what is measured, and what a difference says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gpupipe as gp
from benchmarks import __main__ as command
from benchmarks.equal import UnequalWork
from benchmarks.suites import places

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="benchmarks need /proc")


def test_pick_and_a_shard_are_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["places", "--files", "64", "--images", "64", "--pairs", "1", "--out", str(tmp_path)]
    assert command.main(words) == 0

    (path,) = tmp_path.glob("places-*.json")
    found = json.loads(path.read_text())
    assert set(places.GOALS) < set(found["found"])
    assert all(one["median"] > 0 for one in found["found"].values())
    assert found["found"]["shard, of the CPU time of the whole"]["median"] < 0.8  # with the start of a run
    assert "goal <= 0.1: " in capsys.readouterr().out


def test_other_batches_are_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = gp.Dataset.pick

    def wrong(ds: gp.Dataset, numbers: Any) -> gp.Dataset:
        return real(ds, [(n + 1) % 16 for n in numbers])

    monkeypatch.setattr(gp.Dataset, "pick", wrong)
    with pytest.raises(UnequalWork, match="pick gives another batch"):
        places.places(tmp_path / "out", tmp_path, files=64, images=64, runs=1)
