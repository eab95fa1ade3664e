"""Ranks that differ: what is measured, and what is no result."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import report
from benchmarks.equal import UnequalWork
from benchmarks.pairs import ContestantFailed
from benchmarks.suites import ranks
from gpupipe.comparison.ratios import Spread
from tests.behaviour.test_by_rank import OTHERS

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="benchmarks need /proc")
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


@needs_torch
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_rank_is_timed_up_to_its_error_or_its_first_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["ranks", "--pairs", "1", "--ranks", "2", "--kinds", "nothing,file size", "--out", str(tmp_path)]
    assert command.main(words) == 0

    (path,) = tmp_path.glob("ranks-*.json")
    found = json.loads(path.read_text())
    assert (found["schema"], found["settings"]["ranks"], found["goals"]) == (report.SCHEMA, 2, {"seconds": 1.0})
    assert set(found["runs"]) == {"nothing", "file size"}
    for kind, (run,) in found["runs"].items():
        assert len(run["seconds"]) == len(run["cpu_s"]) == 2
        assert min(run["seconds"]) > 0
        assert found["largest_s"][kind]["median"] == max(run["seconds"])
    assert found["last_error_s"] == max(found["runs"]["file size"][0]["seconds"])
    assert "rank 1 has files of other sizes: 'photos-00000-of-00016.tfrecord'" in found["runs"]["file size"][0]["error"]
    printed = capsys.readouterr().out
    assert "goal <= 1: " in printed and "to its first batch" in printed


@needs_torch
@pytest.mark.timeout(300)
def test_a_rank_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(ContestantFailed, match=r"rank \d \(files\) ended with 1: .*list_files needs files"):
        ranks._measure(tmp_path, "files", 2, cold=True)


@pytest.mark.parametrize(
    ("kind", "errors", "text"),
    [
        (
            "seed",
            ["got rank 1 has another seed: 2, where rank 0 has 1", ""],
            "rank 1 .seed. needs to give .*, got 'a batch'",
        ),
        (
            "seed",
            ["got rank 0 has another seed: 2, where rank 1 has 1"] * 2,
            "rank 0 .seed. needs to give 'got rank 1 has",
        ),
        ("nothing", ["", "got rank 1 has another epoch"], "rank 1 .nothing. needs to give 'a batch', got 'got rank 1"),
    ],
)
def test_another_error_or_none_is_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, errors: list[str], text: str
) -> None:
    said: list[dict[str, Any]] = [
        {"rank": rank, "seconds": 0.1, "cpu_s": 0.1, "error": error} for rank, error in enumerate(errors)
    ]
    monkeypatch.setattr(ranks, "_write", lambda *_: None)
    monkeypatch.setattr(ranks, "_measure", lambda *_: said)
    with pytest.raises(UnequalWork, match=text):
        ranks.ranks(tmp_path / "out", tmp_path, kinds=[kind], world=2, runs=1)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("slowest", "met"), [(1.0, "met"), (1.01, "NOT met")])
def test_the_slowest_run_is_held_to_the_goal(slowest: float, met: str) -> None:
    lines = ranks._table({"nothing": Spread.of([9.0]), "seed": Spread.of([0.1, slowest, 0.2])}).splitlines()

    assert lines[1].endswith("to its first batch")
    assert lines[2].endswith(f"0.200 (0.100-{slowest:.3f})   goal <= 1: {met}")


def test_unknown_kinds_and_numbers_of_ranks_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["ranks", "--kinds", "colour", "--out", str(tmp_path)]) == 2
    assert "--kinds needs some out of nothing, seed, " in capsys.readouterr().err
    assert command.main(["ranks", "--ranks", "3", "--out", str(tmp_path)]) == 2
    assert "divides a batch of 16, 2, 4, 8 or 16, got 3" in capsys.readouterr().err


def test_every_kind_of_difference_that_tests_know_is_measured() -> None:
    assert {kind.removeprefix("file ") for kind in ranks.KINDS} == {"nothing", *OTHERS}
