"""Contestants in pairs: unequal work is refused, who fails is named, what is stopped is kept, and figures are right."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import compare, pairs, report
from benchmarks.contestants import Contestant
from benchmarks.equal import refusals
from benchmarks.job import Audit, Job, Run
from benchmarks.pairs import Pair, run_pairs
from benchmarks.probe import write_probes
from benchmarks.process import PeakMemory, resident_bytes, tree_cpu_seconds
from gpupipe.comparison.ratios import Spread

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="benchmarks need /proc")

PROCESS = """
import json, os, signal, subprocess, sys, time
job = json.loads(sys.stdin.readline())
who, _, when = job["contestant"].partition("-in-")
if when == job["mode"]:
    print("its last words", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGSEGV if who == "signal" else 0)
    assert who != "exception", "no such kernel"
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])  # holds the pipes, too
    open(os.path.dirname(__file__) + "/processes", "w").write(f"{os.getpid()} {child.pid} ")
    time.sleep(60)
one = {"contestant": job["contestant"], "shape": [64, 224, 224, 3], "dtype": "float32"}
print(json.dumps({
    "audit": {**one, "layout": "NHWC", "counts": {"1": 512}, "figures": {"share": 0.37 if who == "unequal" else 0.43}},
    "damaged": {"error": "" if who == "careless" else "a wrong checksum"},
    "measure": {**one, "items": 9, "seconds": 1, "cpu_seconds": 2, "first_batch_s": 1, "start_s": 1, "peak_rss_mb": 5},
}[job["mode"]]))
"""
"""A contestant's process, which its name makes fail: `signal-in-audit` is ended by a signal in its audit."""
REASONS = {
    "signal": "ended by SIGSEGV: its last words",
    "exception": "ended with 1: AssertionError: no such kernel",
    "hang": "no end within 1 s",
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Compares contestants, the first of which is the reference, in two pairs each: its status, results and stderr."""

    def compared(*names: str, work: Any = "chain") -> Any:
        contestants = {name: Contestant(name, work, "nowhere", name, ("sys",)) for name in names}
        for module in ("compare", "report"):
            monkeypatch.setattr(f"benchmarks.{module}.CONTESTANTS", contestants)
        words = ["--data", str(write_probes(tmp_path, 64, 1)[0]), "--probes", "1", "--batch", "64", "--timeout", "1"]
        words += ["--pairs", "2", "--against", names[0], "--out", str(tmp_path / "results")]
        status = command.main([work, *words])
        results = [json.loads(path.read_text()) for path in (tmp_path / "results").glob("*")]
        return status, results, capsys.readouterr().err

    (tmp_path / "process.py").write_text(PROCESS)
    monkeypatch.setattr(pairs, "CHILD", str(tmp_path / "process.py"))
    return compared


@pytest.mark.parametrize("when", ["audit", "measure"])
@pytest.mark.parametrize("how", REASONS)
def test_a_contestant_that_fails_is_absent_with_its_reason_and_leaves_no_process(
    how: str, when: str, run: Callable[..., Any], tmp_path: Path
) -> None:
    status, (found,), _ = run("dali", f"{how}-in-{when}", "other")

    assert (status, found["not_measured"]) == (0, {f"{how}-in-{when}": f"failed: {REASONS[how]}"})
    assert [pair["contestant"] for pair in found["pairs"]] == ["dali", "other"] * 2
    while how == "hang" and any(map(resident_bytes, map(int, (tmp_path / "processes").read_text().split()))):
        time.sleep(0.05)  # killed, they may not have had their turn yet


@pytest.mark.parametrize(("count", "number"), [(1, signal.SIGTERM), (3, signal.SIGTERM), (3, signal.SIGINT)])
def test_the_pairs_before_a_signal_are_written_if_each_contestant_has_one(
    count: int, number: signal.Signals, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*arguments: Any, **options: Any) -> Iterator[Pair]:
        for done, pair in enumerate(run_pairs(*arguments, **options)):
            if done == count:
                signal.raise_signal(number)
            yield pair

    monkeypatch.setattr(compare, "run_pairs", stopped)
    status, found, _ = run("dali", "other")

    kept = [(one["stopped"], [pair["contestant"] for pair in one["pairs"]]) for one in found]
    whole = (f"{number.name} after 3 of 4 pairs", ["dali", "other", "dali"])
    assert (status, kept) == (128 + number, [whole] if count == 3 else [])


@pytest.mark.parametrize(
    ("names", "work", "text"),
    [
        (("dali", "unequal"), "chain", "share: dali 0.43, unequal 0.37"),
        (("dali", "careless"), "extract", "got careless that did not notice a wrong one"),
        (("signal-in-audit", "other"), "chain", "signal-in-audit ended by SIGSEGV and this text:\nits last"),
        (("exception-in-measure", "other"), "chain", "exception-in-measure ended with 1 and this text:\nits last"),
    ],
)
def test_unequal_work_and_a_reference_that_fails_are_errors_without_a_result(
    names: tuple[str, ...], work: str, text: str, run: Callable[..., Any]
) -> None:
    status, found, said = run(*names, work=work)

    assert (status, found) == (2, [])
    assert text in said and "pair 1" not in said


A = Audit("a", (64, 224, 224, 3), "float32", "NHWC", {"40": 512}, {"share": 0.43, "contrast": 0.28})


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"figures": {"share": 0.4385, "contrast": 0.3}}, []),
        ({"figures": {"share": 0.4395, "contrast": 0.6}}, ["contrast: a 0.28, b 0.6", "share: a 0.43, b 0.4395"]),
        ({"figures": {"share": 0.43}}, ["contrast: measured for one of a, b only"]),
        ({"dtype": "float16", "layout": "NCHW"}, ["dtype: a float32, b float16", "layout: a NHWC, b NCHW"]),
        ({"counts": {"39": 2}}, ["b delivered labels 2 of them 39x, needed 512 of them 40x"]),
    ],
    ids=str,
)
def test_every_difference_of_work_is_named(changes: dict[str, Any], refused: list[str]) -> None:
    assert refusals([A, replace(A, contestant="b", **changes)], A.counts) == refused


def test_all_are_compared_with_one_another() -> None:
    """Each of two may be as near to the first as is allowed, and too far from the other."""
    shares = {"a": 0.43, "b": 0.425, "c": 0.435}
    audits = [replace(A, contestant=name, figures={"share": share}) for name, share in shares.items()]

    assert refusals(audits, A.counts) == ["share: b 0.425, c 0.435"]


def made(name: str, cpu: float = 1.0, seconds: float = 1.0) -> Run:
    return Run(name, 100, seconds, cpu, 0.1, 0.2, 50.0, (64, 224, 224, 3), "float32")


def test_every_second_pair_runs_the_reference_first_and_each_run_has_a_seed_of_its_own() -> None:
    order: list[tuple[str, int]] = []

    def measure(job: Job) -> Run:
        order.append((job.contestant, job.seed))
        return made(job.contestant)

    found = list(run_pairs(Job("", (), seed=5), ["a", "ref"], "ref", 2, measure))

    assert order[:4] == [("ref", 5), ("ref", 6), ("a", 5), ("ref", 6)]
    assert order[4:] == [("ref", 8), ("ref", 7), ("ref", 8), ("a", 7)]
    sides = [(one.contestant, one.run.contestant, one.reference.contestant, one.reference_first) for one in found]
    assert sides == [(who, who, "ref", first) for first in (False, True) for who in ("ref", "a")]


def test_a_summary_divides_by_the_partner_of_the_pair_and_the_reference_beside_itself_is_the_noise() -> None:
    runs = [Pair("a", made("a", 3.0, 4.0), made("ref", cpu, 2.0), False) for cpu in (2.0, 3.0, 6.0)]

    found = report.summary([*runs, Pair("ref", made("ref", 2.0), made("ref", 1.6), False)], "ref")

    # 3 s of CPU time and 4 s for 100 images
    assert (found["a"]["cpu_ms_per_item"].median, found["a"]["items_per_s"].median) == (30.0, 25.0)
    assert found["a"]["cpu_ratio"] == Spread(0.5, 1.0, 1.5, 3)
    assert found["a"]["rate_ratio"] == Spread(0.5, 0.5, 0.5, 3)
    assert found["ref"]["cpu_ratio"].median == 1.25


def test_cpu_time_of_a_process_is_counted_once_while_it_lives_and_after_its_end() -> None:
    burn = "import time\nwhile time.process_time() < 0.4: pass\nprint(flush=True); input()"
    before = tree_cpu_seconds()
    worker = subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert worker.stdout is not None and worker.stdout.read(1)
    alive = tree_cpu_seconds() - before
    worker.communicate(b"\n")

    assert 0.4 <= alive <= tree_cpu_seconds() - before < alive + 0.4


def test_the_peak_of_memory_is_that_of_all_processes_together() -> None:
    grandchild = "import os, time; block = os.urandom(1 << 26); print(flush=True); time.sleep(60)"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grandchild!r}])"
    process = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE, start_new_session=True)
    watch = PeakMemory(process.pid, interval=0.02)
    assert process.stdout is not None and process.stdout.readline()
    time.sleep(0.2)
    os.killpg(process.pid, 9)
    process.communicate()
    assert watch.stop() > 1 << 26
