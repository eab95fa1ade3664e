"""python -m benchmarks autotune: its chains do equal work, and every start is compared with the best of the grid."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import autotune as suite
from benchmarks.__main__ import main
from benchmarks.autotune import AUTO, CHAINS, GOALS, STARTS, Run, autotune, build, lines
from benchmarks.equal import UnequalWork
from benchmarks.pairs import ContestantFailed
from gpupipe.comparison.photographs import write_shards


@pytest.mark.parametrize("chain", CHAINS)
def test_a_chain_gives_the_same_with_fixed_numbers_and_with_those_that_are_tuned(chain: str, tmp_path: Path) -> None:
    write_shards(tmp_path, 8, 4)
    fixed = Run(chain, (2, 3, 1), folder=str(tmp_path))
    tuned = replace(fixed, numbers=(AUTO, AUTO, AUTO), start=(3, 5, 4), tunes=True)
    both = []
    for run in (fixed, tuned):
        with build(run).iterator(epoch=1) as items:
            both.append([next(items) for _ in range(2)])
            started = items.stats().tuned

    np.testing.assert_equal(both[0], both[1])
    assert sorted(started.values()) == [3, 4, 5]


def test_starts_are_compared_with_the_best_of_the_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def alone(run: Run) -> dict[str, Any]:
        rate = 100.0 * min(run.numbers) if AUTO not in run.numbers else 50.0 * run.start[1] + run.tunes
        return {"rate": rate, "cpu_ms": 2.0 + run.tunes, "tuned": {}, "decisions": []}

    monkeypatch.setattr(suite, "_alone", alone)
    monkeypatch.setattr(suite, "AHEAD", 20)
    found = json.loads(autotune(tmp_path, tmp_path, images=2, pairs=2).read_text())

    assert set(found["summary"]) == set(CHAINS)
    best = found["summary"]["slow files"]
    assert (best["best of the grid"], best["rate"], best["goal"]) == ([16, 64, 20], 1600, GOALS["slow files"])
    assert {name: best[name] for name in STARTS} == {
        "everything 1": 51 / 1600,
        "16 threads": 801 / 1600,
        "one reader": 201 / 1600,
    }
    harm = found["summary"]["training"]["nothing to tune"]
    assert harm["count"] == 2
    assert harm["median"] > 1
    assert harm["cpu"]["median"] == 1.5
    assert harm["noise"]["values"] == harm["noise of cpu"]["values"] == [1, 1]
    assert "NOT met" in lines("slow files", best)
    assert "CPU time: 1.500 (1.500-1.500); the noise: 1.000" in lines("training", found["summary"]["training"])


def test_the_command_measures_one_chain_from_one_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, runs = suite._alone, []

    def short(run: Run) -> dict[str, Any]:
        runs.append(run)
        return real(replace(run, warmup=0.1, seconds=0.1)) if AUTO in run.numbers else {"rate": 1.0}

    monkeypatch.setattr(suite, "_alone", short)
    words = ["--chains", "slow files", "--starts", "one reader", "--seconds", "7", "--out", str(tmp_path)]

    assert main(["autotune", *words]) == 0
    assert "from one reader" in capsys.readouterr().out
    assert (runs[-1].start, runs[-1].warmup, runs[-1].tunes) == (STARTS["one reader"], 7.0, True)
    (path,) = tmp_path.glob("autotune-*.json")
    found = json.loads(path.read_text())["runs"]
    assert len(found) == len(runs) == 12 + 2 + 1
    assert found[-1]["rate"] > 0
    assert set(found[-1]["tuned"].values()) <= {1, 2, 4, 8}


def test_unknown_names_and_runs_that_fail_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["autotune", "--chains", "slow fish", "--out", str(tmp_path)]) == 2
    assert "autotune needs chains out of slow files, slow service, training" in capsys.readouterr().err
    with pytest.raises(UnequalWork, match="starts out of everything 1, 16 threads, one reader, got nothing"):
        autotune(tmp_path, tmp_path, starts=["nothing"])
    with pytest.raises(ContestantFailed, match=r"training failed:\n(.|\n)*none/\*\.tfrecord"):
        suite._alone(Run("training", (1, 1, 1), folder=str(tmp_path / "none")))
