"""Two Ray workers beside a loop: what is measured, also while workers are killed, and what is no result."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks.suites import on_ray
from tests.on_ray.sessions import ROOT, apart, needs_ray

RUN = {"cpu_ms": 2.0, "trainer_ms": 0.05, "wait_s": 4.0, "killed": 0, "digest": "a"}


def with_ray(test: Any) -> Any:
    """A test that needs Ray."""
    for mark in needs_ray:
        test = mark(test)
    return test


@with_ray
def test_workers_are_measured_and_killed_and_give_the_batches_of_the_loop(shards: str, tmp_path: Path) -> None:
    words = ["on-ray", "--pairs", "1", "--batches", "8", "--epochs", "1", "--kills", "1", "--data", shards]
    whole = [*apart(), sys.executable, "-m", "benchmarks", *words, "--out", str(tmp_path / "out")]
    done = subprocess.run(whole, cwd=ROOT, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-3000:]

    (path,) = (tmp_path / "out").iterdir()
    found = json.loads(path.read_text())
    assert set(found["runs"]) == {"loop", "on_ray", "killed"}
    assert found["runs"]["killed"][0]["killed"] == 1
    assert found["runs"]["killed"][0]["wait_s"] > 0
    assert found["cpu_ms"]["on_ray"] > found["cpu_ms"]["loop"] / 2  # that of the workers is counted
    assert b"longest wait while 1 workers are killed: " in done.stdout


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"digest": "b", "killed": 6}, "gave other batches than the loop"),
        ({"killed": 5}, "needs more batches than that, got 5 of 6 kills"),
    ],
)
def test_other_batches_or_fewer_kills_are_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], changed: Any, text: str
) -> None:
    class Drawn:
        files = ()

    monkeypatch.setattr("benchmarks.data.load", lambda *_: Drawn)
    monkeypatch.setattr(on_ray, "_measure", lambda name, *_: {**RUN, **(changed if name == "killed" else {})})

    assert command.main(["on-ray", "--pairs", "1", "--out", str(tmp_path / "out")]) == 2
    assert text in capsys.readouterr().err
    assert command.main(["on-ray", "--pairs", "1", "--kills", "0", "--out", str(tmp_path / "out")]) == 0
