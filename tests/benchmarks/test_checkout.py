"""Two checkouts in one comparison: which gpupipe runs, what "no worse" means, and what is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import commands, pairs
from benchmarks.__main__ import main
from benchmarks.checkout import ROOT, place
from benchmarks.equal import UnequalWork
from benchmarks.job import Job
from benchmarks.machine import commit
from benchmarks.no_worse import cpu_us, no_worse, verdict
from benchmarks.pairs import ContestantFailed, spawn
from gpupipe.comparison.ratios import Spread

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="benchmarks need /proc")


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A copy of the product, without benchmarks: it is run by these."""
    for name in ("gpupipe", "ops"):
        shutil.copytree(ROOT / name, tmp_path / "other" / name, symlinks=True)
    return tmp_path / "other"


def test_the_old_side_and_its_worker_processes_run_the_code_of_the_folder(
    other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "PAYLOAD", 500_000)  # 16 MiB are worth a second process
    log = tmp_path / "log"
    with open(other / "gpupipe" / "tools" / "check.py", "a") as file:
        file.write(f"import os\nwith open({str(log)!r}, 'a') as log:\n    log.write(f'{{os.getpid()}} ')\n")
    small = ("--images", "8", "--records", "40", "--pairs", "1", "--out", str(tmp_path / "out"))

    assert main(["commands", "--checkout", str(other), *small]) == 0

    assert len(set(log.read_text().split())) == 1 + (1 + 2)  # `verify` alone, and with two workers; none of this side
    (path,) = (tmp_path / "out").iterdir()
    found = json.loads(path.read_text())
    assert (found["commit"], found["checkout"]) == (commit(), "unknown") and str(tmp_path) not in path.read_text()
    assert [pair["contestant"] for pair in found["pairs"]] == ["noise", "pack", "verify", "verify with 2 workers"]
    assert capsys.readouterr().out.count("worse: ") == 3 + 1  # the last line says what it means


def test_gpupipe_and_its_ops_are_those_of_the_folder_and_the_benchmarks_are_these(other: Path) -> None:
    code = "import benchmarks, gpupipe.ops; print(gpupipe.__file__, gpupipe.ops.__file__, *benchmarks.__path__)"
    with place(str(other)) as (folder, variables):
        said = subprocess.check_output([sys.executable, "-c", code], cwd=folder, env=variables, text=True)
        product, ops, harness = (Path(word).resolve() for word in said.split())
    assert (product.parent, ops.parent, harness) == (other / "gpupipe", other / "ops", ROOT / "benchmarks")


def test_a_process_with_another_gpupipe_than_that_of_the_folder_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "place", lambda _: place(""))  # as if an installed one came first

    with pytest.raises(ContestantFailed, match=f"ImportError: this run needs the gpupipe of {tmp_path}, got {ROOT}"):
        spawn(Job("gpupipe-host", (), "host", batch=32, chain="batch", elements=160, checkout=str(tmp_path)))


@pytest.mark.parametrize(
    ("ratio", "noise", "said"),
    [(1.02, 1.0, "no worse: 1.020"), (1.0201, 1.0, "worse: 1.020"), (1.04, 1.04, "no worse: 1.040"),
     (1.04, 1 / 1.04, "no worse: 1.040"), (1.041, 1 / 1.04, "worse: 1.041")],
)  # fmt: skip
def test_no_worse_is_two_per_cent_or_as_near_to_1_as_the_noise(ratio: float, noise: float, said: str) -> None:
    found = verdict(Spread.of([ratio] * 9), Spread.of([noise] * 9))

    assert found == f"{said} ({ratio:.3f}-{ratio:.3f}), noise {noise:.3f}"
    assert verdict(Spread.of([ratio]), Spread.of([noise])).endswith(", 1 of 9 pairs")


def test_new_is_divided_by_old_in_alternating_order_and_unequal_work_is_refused(tmp_path: Path) -> None:
    (tmp_path / "gpupipe" / "ops").mkdir(parents=True)
    order: list[tuple[str, bool, int]] = []

    def run(job: Job) -> dict[str, Any]:
        order.append((job.contestant, job.checkout == str(tmp_path), job.seed))
        if job.contestant == "broken" and job.checkout == str(tmp_path):
            raise ContestantFailed("broken", "no such option", "a long text")
        return {"items": 10, "cpu_seconds": 1.0 if job.checkout == str(tmp_path) else 2.0}

    jobs = {name: Job(name, ()) for name in ("fast", "broken")}
    wanted: dict[str, Any] = {"pairs": 2, "settings": {}, "figures": {"CPU-us": cpu_us}, "measure": run}
    path = no_worse("some", jobs, tmp_path, tmp_path, **wanted)

    found = json.loads(path.read_text())
    one, two = [("fast", False, 0)] * 3 + [("fast", True, 0)], [("fast", False, 2)] * 2 + [("fast", True, 2)]
    assert [each for each in order if each[0] == "fast"] == [*one, *two, ("fast", False, 2)]
    assert found["not_measured"] == {"broken": "failed: in the other checkout: no such option"}
    assert found["summary"]["CPU-us"]["fast"]["ratio"]["values"] == [2.0, 2.0]
    assert found["summary"]["CPU-us"]["noise"]["ratio"]["values"] == [1.0, 1.0]
    with pytest.raises(UnequalWork, match=r"fast needs equal work of both checkouts, got .*'a'.* other one .*'b'"):
        dtypes = {str(tmp_path): "b", str(ROOT): "a"}
        wanted["measure"] = lambda job: {**run(job), "dtype": dtypes[job.checkout]}
        no_worse("some", jobs, tmp_path, tmp_path, **wanted)


@pytest.mark.parametrize("suite", ["chain", "extract", "host", "first-batch", "commands", "shuffle-memory"])
def test_a_folder_without_gpupipe_is_one_line(suite: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = f"{suite}: --checkout needs the folder of a checkout that holds gpupipe and gpupipe/ops, got"
    for folder in (tmp_path, tmp_path / "absent"):
        assert main([suite, "--checkout", str(folder), "--out", str(tmp_path)]) == 2
        assert capsys.readouterr().err == f"{wanted} {folder}\n"
    assert commit(ROOT / "benchmarks") == "unknown"  # not that of the repository around a folder
