"""A contestant that crashes, fails or hangs is absent with its reason; only the reference's end is that of the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import pairs
from benchmarks.contestants import Contestant
from benchmarks.job import Job
from benchmarks.pairs import ContestantFailed, spawn
from benchmarks.probe import write_probes

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="benchmarks need /proc")

PROCESS = """
import json, os, signal, subprocess, sys, time

job = json.loads(sys.stdin.readline())
who, _, when = job["contestant"].partition("-in-")
if when == job["mode"]:
    print("its last words", file=sys.stderr, flush=True)
    if who == "signal":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif who == "exit":
        os._exit(3)
    elif who == "exception":
        raise RuntimeError("nvImageCodec failure: '#8'")
    elif who == "mute":
        sys.exit()
    elif who == "blank":
        sys.exit(print())
    elif who == "realtime":
        os.kill(os.getpid(), 40)
    elif who in ("leaves", "hides"):
        child = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(30)"], start_new_session=who == "hides"
        )
        open(os.path.dirname(__file__) + "/processes", "w").write(f"{child.pid} ")
        time.sleep(60 if who == "hides" else 0)
    else:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])  # holds the pipes, too
        open(os.path.dirname(__file__) + "/processes", "w").write(f"{os.getpid()} {child.pid} ")
        time.sleep(60)
reports = {
    "audit": {
        "contestant": job["contestant"], "shape": [64, 224, 224, 3], "dtype": "float32", "layout": "NHWC",
        "counts": {"1": 512}, "figures": {"share": 0.43},
    },
    "damaged": {"error": "a wrong checksum"},
    "measure": {
        "contestant": job["contestant"], "items": 100, "seconds": 1.0, "cpu_seconds": 2.0, "first_batch_s": 0.1,
        "start_s": 0.2, "peak_rss_mb": 50.0, "shape": [64, 224, 224, 3], "dtype": "float32",
    },
}
print(json.dumps(reports[job["mode"]]))
"""
"""A process that a name makes fail: `signal-in-audit` is ended by a signal when it is asked for its audit."""

REASONS = {
    "signal": "ended by SIGSEGV: its last words",
    "exit": "ended with 3: its last words",
    "exception": "ended with 1: RuntimeError: nvImageCodec failure: '#8'",
    "mute": "ended without a report: its last words",
    "blank": "ended without a report: its last words",
    "realtime": "ended by signal 40: its last words",
    "hang": "no end within 1 s",
}


@pytest.fixture(autouse=True)
def processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "process.py"
    script.write_text(PROCESS)
    monkeypatch.setattr(pairs, "CHILD", str(script))


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *names: str, reference: str = "dali") -> int:
    contestants = {name: Contestant(name, "chain", "nowhere", f"the {name} one", ("sys",)) for name in names}
    for place in ("benchmarks.compare.CONTESTANTS", "benchmarks.report.CONTESTANTS"):
        monkeypatch.setattr(place, contestants)
    shards = tmp_path / "shards"
    shards.mkdir()
    write_probes(shards, 64, 8)
    words = ["--probes", "1", "--pairs", "3", "--data", f"{shards}/*.tfrecord", "--timeout", "1"]
    return command.main(["chain", *words, "--against", reference, "--out", str(tmp_path / "results")])


def result(tmp_path: Path) -> dict[str, Any]:
    (path,) = (tmp_path / "results").iterdir()
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize("when", ["audit", "damaged", "measure"])
@pytest.mark.parametrize("how", REASONS)
def test_a_contestant_that_fails_is_absent_with_its_reason(
    how: str, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{how}-in-{when}"

    assert run(tmp_path, monkeypatch, "dali", name, "other") == 0

    printed, found = capsys.readouterr(), result(tmp_path)
    assert f"the {name} one: failed: {REASONS[how]}" in printed.out
    assert found["not_measured"] == {name: f"failed: {REASONS[how]}"}
    assert {pair["contestant"] for pair in found["pairs"]} == {"dali", "other"}
    assert found["summary"].keys() == {"dali", "other"}
    assert len(found["pairs"]) == 6
    assert {one["contestant"] for one in found["audits"]} >= {"dali", "other"}


@pytest.mark.parametrize("when", ["audit", "damaged", "measure"])
@pytest.mark.parametrize("how", ["signal", "hang"])
def test_a_reference_that_fails_ends_the_run(
    how: str, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{how}-in-{when}"

    assert run(tmp_path, monkeypatch, "other", name, reference=name) == 2

    assert name in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_what_a_contestant_started_ends_with_it(tmp_path: Path) -> None:
    with pytest.raises(ContestantFailed, match="hang-in-audit needs to finish within 2 s, got no end"):
        spawn(Job("hang-in-audit", (), "audit", timeout=2))

    while not all(map(ended, (tmp_path / "processes").read_text().split())):
        time.sleep(0.05)


def test_a_report_counts_although_a_child_of_the_contestant_goes_on(tmp_path: Path) -> None:
    report, _ = spawn(Job("leaves-in-damaged", (), "damaged", timeout=20))

    assert report == {"error": "a wrong checksum"}
    while not all(map(ended, (tmp_path / "processes").read_text().split())):
        time.sleep(0.05)


def test_a_child_in_a_session_of_its_own_holds_nobody_up(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(ContestantFailed, match="needs to finish within 1 s, got no end"):
        spawn(Job("hides-in-audit", (), "audit", timeout=1))

    assert time.monotonic() - began < 15
    os.kill(int((tmp_path / "processes").read_text()), signal.SIGKILL)


def test_a_group_is_killed_only_while_nobody_else_can_have_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    kill, held = os.killpg, []

    def killpg(pid: int, number: int) -> None:
        held.append(Path(f"/proc/{pid}").exists())  # alive or a zombie
        kill(pid, number)

    monkeypatch.setattr(os, "killpg", killpg)
    spawn(Job("dali", (), "damaged"))
    with pytest.raises(ContestantFailed):
        spawn(Job("hang-in-audit", (), "audit", timeout=1))

    assert held == [True, True]


def ended(pid: str) -> bool:
    stat = Path("/proc", pid, "stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_contestant_ends_with_a_benchmark_that_is_killed(tmp_path: Path) -> None:
    noted = tmp_path / "processes"
    script = (
        f"from benchmarks import pairs; from benchmarks.job import Job; pairs.CHILD = {pairs.CHILD!r}; "
        "pairs.spawn(Job('hang-in-audit', (), 'audit'))"
    )
    process = subprocess.Popen([sys.executable, "-c", script], cwd=Path(command.__file__).parent.parent)
    while not noted.exists() or not noted.read_text().endswith(" "):
        time.sleep(0.05)
    process.kill()
    process.wait(60)

    while not ended(noted.read_text().split()[0]):
        time.sleep(0.05)


def test_the_error_holds_the_end_of_what_the_contestant_said() -> None:
    with pytest.raises(ContestantFailed, match=r"(?s)signal-in-audit ended by SIGSEGV and this text:\n.*last words"):
        spawn(Job("signal-in-audit", (), "audit"))
