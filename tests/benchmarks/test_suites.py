"""Every suite of `python -m benchmarks` runs from start to end on tiny data and writes one whole result."""

from __future__ import annotations

import json
import platform
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import autotune, child, compare, planted, report
from benchmarks.job import Job
from benchmarks.probe import write_probes
from benchmarks.suites import every, gil
from gpupipe.comparison.ratios import Spread
from gpupipe.transform.machine import has_dali
from tests.ops.originals import original

pytestmark = pytest.mark.skipif(not has_dali(), reason="DALI is not installed, or this is not Linux")

SMALL: dict[str, Any] = {
    "compare._PROBES": 64,
    "compare.DECODED": 1,
    # gpupipe in place of DALI, and of TensorFlow, which takes seconds to import
    "compare._REFERENCES": {**compare._REFERENCES, "chain": "gpupipe-numpy", "chain-plain": "plain-gpupipe-numpy"}
    | {"extract": "gpupipe-extract", "approximate": "gpupipe-fast-smaller"}
    | {f"chain-uncropped-{form}": f"{form}-numpy" for form in ("resize", "linear", "center")},
    "data.SIZES": {1.0: (2, 96, 128), 3.0: (2, 96, 128)},
    "large.PASSES": 1,
    "flowers.PROBES": 4,
    "flowers.TIMES": 2,
    "autotune.READERS": (16,),
    "autotune.CALLS": (16,),
    "autotune._alone": lambda run: autotune.measured(replace(run, warmup=0.05, seconds=0.05)),
    "suites.cores.Comparison": partial(compare.Comparison, batch=16, warmup=1),
    "suites.far.DELAY": 0.0,
    "suites.gil._TIMED": 2,
    "suites.gil._WINDOW": 64,
    "suites.gil._alone": partial(gil.simulated, batch=16),
    "suites.gil._dali": lambda *_: Spread.of([1.0]),
    # Ray takes ten seconds to start; tests/on_ray tests what its workers do.
    "suites.on_ray._measure": lambda *_: {"cpu_ms": 2.0, "trainer_ms": 0.1, "wait_s": 1.0, "killed": 0, "digest": "a"},
}
"""What the options of a suite do not make small: attributes of the modules of `benchmarks`."""
FAST = "cykooz_resizer"
NEEDS = {"ranks": "torch", "remote": "aiohttp", "gil": FAST, "overhead": FAST, "approximate": FAST}
SHARES = {
    "resize": pytest.approx(1, abs=0.01),
    "linear": pytest.approx(1, abs=0.01),
    "center": pytest.approx(224**2 / (256 * 341), abs=0.01),
}
"""Of a whole image, and of the square in its middle."""
SUITES = [suite for suite in every.PLAN if not suite.gpu and suite.name != "profile"]


def in_this_process(job: Job) -> tuple[dict[str, Any], int]:
    """What `pairs.spawn` returns, without the second that a process takes to import gpupipe."""
    return json.loads(json.dumps(child._report(replace(job, started=time.monotonic())))), 0


def result(folder: Path) -> Any:
    """The one result in a folder, which has all that results begin with and names nothing of this machine."""
    (path,) = folder.iterdir()
    found = json.loads(text := path.read_text(encoding="utf-8"))
    assert found.keys() >= {"benchmark", "commit", "machine", "load", "versions", "settings"}
    assert (found["schema"], path.name) == (report.SCHEMA, f"{found['benchmark']}-{found['date'][:10]}.json")
    assert not any(private in text for private in (str(folder.parent), str(Path.home()), platform.node()))
    return found


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_a_suite_runs_from_start_to_end(suite: every.Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if suite.name in NEEDS:
        original(NEEDS[suite.name])
    for place, value in SMALL.items():
        monkeypatch.setattr(f"benchmarks.{place}", value)
    if suite.name != "host":  # its contestants start fast: they have processes, as all have when it counts
        for module in [module for name, module in sys.modules.items() if name.startswith("benchmarks.")]:
            monkeypatch.setattr(module, "spawn", in_this_process, raising=False)
    words = [*suite.words, *suite.tiny, "--threads", "2", "--out", str(tmp_path / "out"), "--scratch", str(tmp_path)]
    if every.takes_data(suite):
        words += ["--data", str(write_probes(tmp_path, 64, 1)[0])]

    assert command.main(words) == 0
    found = result(tmp_path / "out")
    assert suite.words[0].partition("-")[0] in found["benchmark"]
    if "--dry" in words and suite.name != "extract":
        for figures in (audit["figures"] for audit in found["audits"]):
            share = SHARES.get(suite.words[-1], pytest.approx(0.43, abs=0.12))  # 64 windows: the standard error is 0.04
            assert (figures["share"], figures["level"]) == (share, pytest.approx(128, abs=1))


def test_every_command_is_in_the_plan_of_all() -> None:
    assert {suite.words[0] for suite in every.PLAN} == set(command.COMMANDS) - {"all", "gpu-day"}


def test_all_suites_go_on_with_those_that_have_no_result_of_this_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def run(words: list[str], cwd: Path) -> SimpleNamespace:
        ran.append(words[words.index("benchmarks") + 1])
        if ran[-1] == "good":
            report.write(report.header("good", {}), Path(words[words.index("--out") + 1]))
        return SimpleNamespace(returncode=0 if ran[-1] == "good" else 2)

    monkeypatch.setattr(every, "PLAN", (every.Suite("one", ("good",), 1), every.Suite("two", ("bad",), 1)))
    monkeypatch.setattr("subprocess.run", run)
    for module in (every, report):
        monkeypatch.setattr(module, "commit", lambda: "abc")

    assert [command.main(["all", "--out", str(tmp_path / "out")]) for _ in range(2)] == [2, 2]
    assert (ran, result(tmp_path / "out")["suite"]) == (["good", "bad", "bad"], "one")


def test_planted_bottlenecks_are_named_and_mending_them_pays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plants = [("slow Python map", 2), ("starved prefetch", 2)]
    monkeypatch.setattr(planted, "PROGRAMS", [one for one in planted.PROGRAMS if (one.plant, one.severity) in plants])
    monkeypatch.setattr(planted, "run_program", partial(planted.run_program, steps=12))

    assert command.main(["profile", "--pairs", "1", "--out", str(tmp_path / "out")]) == 0

    found = result(tmp_path / "out")["outcomes"]
    assert [(one["named"], one["right"]) for one in found] == [("python", True), ("queue", True)]
    assert all(one["predicted"] > 1.2 < one["measured"] for one in found)  # both are about 2
