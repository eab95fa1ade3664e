"""python -m benchmarks gil: calls that release the GIL are timed, then slept; all else of the chain is real."""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.contestants import CONTESTANTS, missing
from benchmarks.job import Run
from benchmarks.machine import cores
from benchmarks.pairs import ContestantFailed
from benchmarks.probe import write_probes
from benchmarks.suites import gil as suite
from benchmarks.suites.gil import Released, simulated, summary, table
from gpupipe.comparison.ratios import Spread
from gpupipe.extract.images.region import region_decoder

pytestmark = pytest.mark.skipif(bool(missing(CONTESTANTS["gpupipe-fast"])), reason="the extra `fast` is not installed")

RUN = {
    "executor": "fast",
    "cpu_ms_per_item": 2.0,
    "released_ms_per_item": {"decode": 1.0, "resize": 0.75},
    "real_items_per_s": {"1": 480.0, "2": 900.0},
    "items_per_s": {"1": 500.0, "4": 1500.0},
}


def test_a_call_is_done_until_it_sleeps() -> None:
    step, done = Released(), []

    def call(number: int) -> str:
        done.append(number)
        return "computed"

    assert step.call(call, lambda: "known", 5) == "computed"
    assert (done, step.calls) == ([5], 1)
    assert step.seconds > 0

    step.sleeps = 0.02
    start = perf_counter()
    assert step.call(call, lambda: "known", 6) == "known"
    assert perf_counter() - start >= 0.02
    assert (done, step.calls) == ([5], 1)


@pytest.mark.parametrize(
    "executor",
    [
        pytest.param(
            name,
            marks=pytest.mark.skipif(name == "fast" and region_decoder() is None, reason="nvImageCodec is missing"),
        )
        for name in suite.EXECUTORS
    ],
)
def test_the_chain_runs_with_calls_that_sleep(executor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "_WINDOW", 64)
    monkeypatch.setattr(suite, "_TIMED", 2)
    files = [str(path) for path in write_probes(tmp_path, 64, 2)]

    found = simulated(files, executor, [1, 3], batch=16)

    steps = {"decode", "resize", "normalise"} | ({"mirror"} if executor != "numpy" else set())
    if executor == "fast":
        steps = steps - {"decode"} | {"decode a window"}
    assert found["released_ms_per_item"].keys() == steps
    assert 0 < sum(found["released_ms_per_item"].values()) < found["cpu_ms_per_item"]
    assert found["items_per_s"].keys() == {"1", "3"}
    assert found["real_items_per_s"].keys() == {"1", str(cores())}
    assert all(rate > 0 for rate in (*found["items_per_s"].values(), *found["real_items_per_s"].values()))


def test_a_call_that_fails_is_timed(tmp_path: Path) -> None:
    step = Released()

    with pytest.raises(ZeroDivisionError):
        step.call(lambda x: 1 / x, lambda: None, 0)
    assert step.calls == 1


def test_nothing_stays_patched(tmp_path: Path) -> None:
    import cv2
    from PIL import Image

    before = (cv2.flip, Image.Image.resize)
    with pytest.raises(LookupError), suite.released({}):
        assert cv2.flip is not before[0]
        raise LookupError
    assert (cv2.flip, Image.Image.resize) == before


def test_what_holds_the_lock_is_the_rest() -> None:
    found = summary([RUN, {**RUN, "cpu_ms_per_item": 2.5}, {**RUN, "cpu_ms_per_item": 2.25}])

    assert found["fast"]["held_ms_per_item"].median == 0.5
    assert found["fast"]["4"].median == 1500
    text = " ".join(table(found, {"rate": Spread.of([400.0])}).split())
    assert "gpupipe, fast 500 (1.00) 1500 (0.75) " in text
    assert "DALI by hand, at most 400 (1.00) 1600 (1.00) " in text
    assert "fast: 2.250 CPU-ms an image on one thread, of which 0.500 not in calls that release the GIL; " in text
    assert "images/s of this machine: 480 on 1, 900 on 2" in text


def test_the_command_writes_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def alone(files: list[str], executor: str, numbers: list[int]) -> dict[str, Any]:
        asked.append(executor)
        return {key: value for key, value in RUN.items() if key != "executor"}

    monkeypatch.setattr(suite, "_alone", alone)
    monkeypatch.setattr(
        suite, "measured_alone", lambda job: Run("dali", 64, 0.1, 0.1, 0.1, 0.1, 1.0, (64, 224, 224, 3), "float32")
    )
    write_probes(tmp_path, 16, 1)
    words = ["--data", f"{tmp_path}/*.tfrecord", "--numbers", "1,4", "--out", str(tmp_path / "out")]

    monkeypatch.setattr(suite, "region_decoder", lambda: object())
    assert main(["gil", *words, "--pairs", "2"]) == 0

    assert asked == [*suite.EXECUTORS, *suite.EXECUTORS[::-1]]
    assert "gpupipe, numpy" in capsys.readouterr().out
    (path,) = (tmp_path / "out").glob("gil-*.json")
    found = json.loads(path.read_text())
    assert found["settings"]["threads"] == [1, 4]
    assert found["summary"]["numpy"]["4"]["median"] == 1500
    assert found["summary"]["fast"]["real"]["2"]["median"] == 900
    assert len(found["runs"]) == 6


def test_a_run_of_its_own_prints_what_it_found_or_why_not(tmp_path: Path) -> None:
    with pytest.raises(ContestantFailed, match=r"fast failed:\n(.|\n)*none"):
        suite._alone([str(tmp_path / "none.tfrecord")], "fast", [1])


def test_fast_needs_what_decodes_its_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(suite, "region_decoder", lambda: None)

    assert main(["gil", "--out", str(tmp_path)]) == 2
    assert "gil needs nvImageCodec for fast, got none; use --contestants fast-alone,numpy" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--contestants", "dali"), ("--numbers", "0,4")])
def test_unknown_executors_and_numbers_are_refused(
    words: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gil", *words, "--out", str(tmp_path)]) == 2
    assert "gil needs executors out of fast, fast-alone, numpy and threads from 1 on, got" in capsys.readouterr().err
