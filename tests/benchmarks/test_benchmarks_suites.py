"""First batches and imports, the chain on some cores, and a training step."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import child, report
from benchmarks.contestants import CONTESTANTS, missing
from benchmarks.job import Job, Run
from benchmarks.pairs import Pair
from benchmarks.suites import cores, first, training
from gpupipe.comparison.ratios import Spread

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="benchmarks need /proc")


def made(name: str, first_batch: float, rate: float = 100.0) -> Run:
    return Run(name, 100, 100 / rate, 2.0, first_batch, first_batch + 1, 50.0, (64, 224, 224, 3), "float32")


def test_a_first_batch_is_compared_pair_by_pair_and_with_the_goal() -> None:
    pairs = [Pair("gpupipe-dali", made("gpupipe-dali", ours), made("dali", theirs), False)
             for ours, theirs in ((1.0, 0.5), (1.2, 1.15), (1.4, 1.2))]  # fmt: skip
    later = first.apart(pairs, "gpupipe-dali")

    assert later["from the iterator"].values == pytest.approx((0.5, 0.05, 0.2))
    text = first.table(pairs, {"gpupipe-dali": later}, {"tfdata": "not installed: tensorflow"})
    assert "goal <= 0.1: NOT met" in text and "tf.data: not installed: tensorflow" in text
    near = {"from the iterator": Spread.of([0.09]), "from the process": Spread.of([2.0])}
    assert "goal <= 0.1: met" in first.table(pairs, {"gpupipe-dali": near}, {})


def test_an_import_is_timed_with_bytecode_and_over_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    asked: list[str] = []

    def run(words: list[str], check: bool, cwd: Path, env: dict[str, str]) -> None:
        assert "PYTHONDONTWRITEBYTECODE" not in env
        asked.append(words[-1])
        time.sleep(0.03 if "gpupipe" in words[-1] else 0.0)

    monkeypatch.setattr("subprocess.run", run)
    found = first.imports(2)

    ours, theirs = "import gpupipe", "import numpy"
    assert asked == [ours, theirs, ours, theirs, theirs, ours]  # one of each, then pairs in alternating order
    assert [len(one) for one in found.values()] == [2, 2, 2]
    assert all(0.02 < over < 0.5 for over in found["over NumPy's"])


@pytest.mark.skipif(bool(missing(CONTESTANTS["dali"])), reason="DALI is not installed")
def test_the_first_batch_is_measured_from_start_to_end(
    shards: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(first, "imports", lambda count: {"gpupipe": [0.3], "numpy": [0.2], "over NumPy's": [0.1]})
    small = ("--contestants", "dali", "--pairs", "1", "--shuffle", "8", "--batch", "16", "--data", shards)

    assert command.main(["first-batch", *small, "--out", str(tmp_path / "out")]) == 0

    found = json.loads(next((tmp_path / "out").iterdir()).read_text())
    assert (found["schema"], found["benchmark"], found["reference"]) == (report.SCHEMA, "first-batch", "dali")
    assert found["imports"]["over NumPy's"]["median"] == pytest.approx(0.1)
    assert found["after_reference_s"]["dali"]["from the iterator"]["count"] == 1
    assert "import gpupipe over import numpy: 0.1" in capsys.readouterr().out


def test_processes_are_bound_to_some_cores_and_released() -> None:
    before = os.sched_getaffinity(0)
    with cores.bound(1):
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before
    assert [cores.some(n) for n in (1, 2, 6, 16)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8, 16]]


def test_the_share_of_linear_is_relative_to_the_fewest_cores() -> None:
    found = {n: report.summary([Pair("dali", made("dali", 1, rate), made("dali", 1, rate), False)], "dali")
             for n, rate in ((1, 100.0), (4, 300.0))}  # fmt: skip
    assert "300 (0.75), 20.00" in cores.table(found, {})


def test_the_chain_runs_on_one_core(shards: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, Job]] = []

    def pairs(job: Job, names: list[str], reference: str, count: int, on_failure: Any) -> Iterator[Pair]:
        seen.append((len(os.sched_getaffinity(0)), job))
        yield Pair("dali", made("dali", 1), made("dali", 1), False)

    monkeypatch.setattr(cores, "run_pairs", pairs)
    monkeypatch.setattr(cores, "audited", lambda *args: ([], {}))
    monkeypatch.setattr(cores, "present", lambda what: (["dali"], {}))
    small = ("--cores", "1", "--pairs", "1", "--batches", "2", "--data", shards, "--out", str(tmp_path / "out"))

    assert command.main(["cores", *small]) == 0

    ((count, job),) = seen
    assert (count, job.threads, job.batches) == (1, 1, 2)
    found = json.loads(next((tmp_path / "out").iterdir()).read_text())
    assert found["summary"]["1"]["dali"]["items_per_s"]["median"] == 100
    assert [pair["cores"] for pair in found["pairs"]] == [1]
    assert command.main(["cores", "--cores", "4096", "--out", str(tmp_path)]) == 2


def test_a_loop_waits_for_a_loader_that_is_slower_than_its_step() -> None:
    def loader() -> Iterator[tuple[Any, Any]]:
        while True:
            time.sleep(0.03)
            yield np.zeros((4, 2)), np.zeros(4)

    found = child.measure_waiting(Job("x", (), warmup=1, batches=4, step=0.01), loader())

    assert 0.6 < found["waited"] < 0.9  # 30 of 40 ms: a generator does nothing while the loop is in its step
    assert 50 < found["images_per_s"] < 110


def test_the_share_of_waiting_is_measured_from_start_to_end(
    shards: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "audited", lambda *args: ([], {}))
    monkeypatch.setattr(training, "present", lambda what: (["gpupipe-numpy"], {}))
    small = ("--pairs", "1", "--batch", "16", "--batches", "2", "--warmup", "1", "--shuffle", "8", "--steps", "5,20")

    assert command.main(["training", *small, "--data", shards, "--out", str(tmp_path / "out")]) == 0

    found = json.loads(next((tmp_path / "out").iterdir()).read_text())
    assert set(found["summary"]["gpupipe-numpy"]) == {"5", "20"}
    assert 0 <= found["summary"]["gpupipe-numpy"]["20"]["measured"]["waited"]["median"] < 1
    assert [run["step_ms"] for run in found["runs"]] == [5, 20]


def test_waiting_is_laid_out_by_step() -> None:
    runs = [{"contestant": "dali", "step_ms": step, "waited": 1 / step, "images_per_s": 64.0, "cpu_ms_per_item": 2.0}
            for step in (5.0, 20.0, 20.0)]  # fmt: skip
    text = training.table(training.summary(runs), [5, 20], {"torch": "not installed: torch"})

    assert "20.0% (64)" in text and "5.0% (64)" in text and "torch DataLoader + Pillow: not installed" in text
