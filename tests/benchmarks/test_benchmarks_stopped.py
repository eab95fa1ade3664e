"""A comparison that ends early, by a signal, the clock or its reference, keeps its pairs if each contestant has one."""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import compare
from benchmarks.contestants import Contestant
from benchmarks.job import Audit, Job, Run
from benchmarks.pairs import ContestantFailed, Pair
from benchmarks.probe import write_probes

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="benchmarks need /proc")

NAMES = ("dali", "other", "third")


def end_by(number: signal.Signals) -> Callable[[], None]:
    """Send a signal to this process."""
    return lambda: signal.raise_signal(number)


def reference_fails() -> None:
    raise ContestantFailed("dali", "no end within 1 s", "dali needs to finish within 1 s")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """A comparison of three contestants that is ended after some pairs."""
    names = {name: Contestant(name, "chain", "nowhere", f"the {name} one", ("sys",)) for name in NAMES}
    figures = {"share": 0.43, "contrast": 0.28, "flipped": 0.5, "level": 128.0}
    for place in ("benchmarks.compare.CONTESTANTS", "benchmarks.report.CONTESTANTS"):
        monkeypatch.setattr(place, names)
    monkeypatch.setattr(
        compare, "audit", lambda job: Audit(job.contestant, (64, 224, 224, 3), "float32", "NHWC", {"1": 512}, figures)
    )
    monkeypatch.setattr(compare, "notices_damage", lambda job: True)
    (shards := tmp_path / "shards").mkdir()
    write_probes(shards, 64, 8)

    def made(name: str, seconds: float) -> Run:
        return Run(name, 100, seconds, 2.0, 0.1, 0.2, 50.0, (64, 224, 224, 3), "float32")

    def ended(count: int, end: Callable[[], Any], *more: str) -> int:
        def pairs(job: Job, contestants: list[str], reference: str, rounds: int, **_: Any) -> Iterator[Pair]:
            for i in range(rounds * len(contestants)):
                if i == count and end():
                    return
                yield Pair(contestants[i % len(contestants)], made("one", 0.5), made(reference, 0.8), i % 2 == 1)

        monkeypatch.setattr(compare, "run_pairs", pairs)
        words = ["--out", str(tmp_path / "results"), "--probes", "1", "--pairs", "3", "--data", f"{shards}/*.tfrecord"]
        return command.main(["chain", *words, *more])

    return ended


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_the_pairs_so_far_are_written_and_shown_when_a_signal_stops_it(
    run: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    assert run(4, end_by(number)) == 128 + number

    (path,) = (tmp_path / "results").iterdir()
    found = json.loads(path.read_text())
    assert found["stopped"] == f"{number.name} after 4 of 9 pairs"
    assert len(found["pairs"]) == 4
    assert found["summary"].keys() == set(NAMES)
    assert found["summary"]["dali"]["cpu_ratio"]["count"] == 2
    printed = capsys.readouterr()
    assert "the third one" in printed.out and "medians of 2 pairs" in printed.out
    assert printed.err.endswith(
        f"stopped: {number.name} after 4 of 9 pairs; they are in {path}\nchain: stopped by {number.name}\n"
    )
    assert "pair 2 of 9: other 20.000 CPU-ms, 200 images/s; dali 20.000 CPU-ms, 125 images/s\n" in printed.err


def test_the_pairs_so_far_are_written_when_the_reference_ends(run: Callable[..., int], tmp_path: Path) -> None:
    assert run(7, reference_fails) == 2

    (path,) = (tmp_path / "results").iterdir()
    assert json.loads(path.read_text())["stopped"] == "dali: no end within 1 s after 7 of 9 pairs"


@pytest.mark.parametrize(("end", "status"), [(end_by(signal.SIGTERM), 143), (reference_fails, 2)])
def test_nothing_is_written_before_each_contestant_has_a_pair(
    run: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str], end: Any, status: int
) -> None:
    assert run(2, end) == status

    assert not (tmp_path / "results").exists()
    assert capsys.readouterr().out == ""


def test_rounds_that_are_left_out_for_the_time_are_told(
    run: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(6, lambda: "the time is over", "--minutes", "7") == 0

    (path,) = (tmp_path / "results").iterdir()
    found = json.loads(path.read_text())
    assert found["stopped"] == "the end of 7 minutes after 6 of 9 pairs"
    assert found["settings"]["minutes"] == 7
    printed = capsys.readouterr()
    assert "medians of 2 pairs" in printed.out
    assert f"stopped: the end of 7 minutes after 6 of 9 pairs; they are in {path}" in printed.err


@pytest.mark.parametrize("minutes", ["-1", "nan", "inf", "soon"])
def test_minutes_are_a_number_from_0_on(minutes: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main(["chain", "--minutes", minutes])
    assert "--minutes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "seconds"), [((), math.inf), (("--minutes", "0"), math.inf), (("--minutes", "7"), 420)]
)
def test_a_comparison_has_as_many_minutes_as_it_is_given(
    run: Callable[..., int], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], seconds: float
) -> None:
    given: list[float] = []

    def paired(*arguments: Any) -> Any:
        given.append(arguments[-1] - time.monotonic())
        raise KeyboardInterrupt

    monkeypatch.setattr(compare, "_paired", paired)
    with pytest.raises(KeyboardInterrupt):
        run(-1, lambda: None, *words)

    assert given[0] == seconds or seconds - 60 < given[0] < seconds  # what came before takes a part of them


def test_a_comparison_to_its_end_was_not_stopped(run: Callable[..., int], tmp_path: Path) -> None:
    assert run(-1, reference_fails) == 0

    (path,) = (tmp_path / "results").iterdir()
    assert "stopped" not in json.loads(path.read_text())
