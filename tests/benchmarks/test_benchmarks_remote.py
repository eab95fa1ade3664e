"""The records of a slow server: what is measured, and what a failure says."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.equal import UnequalWork
from benchmarks.suites import remote

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="benchmarks need /proc")
ROOT = Path(remote.__file__).parents[2]
needs_http = pytest.mark.skipif(importlib.util.find_spec("aiohttp") is None, reason="fsspec's HTTP needs aiohttp")


@pytest.mark.parametrize(("slowest", "met"), [(0.5, "met"), (0.51, "NOT met")])
def test_the_slowest_question_at_200_ms_is_held_to_its_goal(slowest: float, met: str) -> None:
    run = {f"{key}_s": slowest if key == "list_cold" else 0.2 for key in remote.QUESTIONS}
    lines = remote._questions({"50": {"this": [run]}, "200": {"this": [run], "other": [run]}})

    assert [line.rpartition("goal")[2] for line in lines if "goal" in line] == [f" <= 0.5: {met}"]
    assert lines[2].startswith("200 ms ") and lines[2].endswith(f"0.20   goal <= 0.5: {met}")


@needs_http
def test_an_epoch_is_timed_and_its_requests_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["remote", "--pairs", "1", "--latencies", "0,50", "--each", "2", "--against", str(ROOT), "--out"]
    assert command.main([*words, str(tmp_path)]) == 0

    (path,) = tmp_path.glob("remote-*.json")
    found = json.loads(path.read_text())
    for latency in ("0", "50"):
        for name in ("this", "other"):
            (run,) = found["runs"][latency][name]
            assert run["requests"] == 2 * remote.FILES  # the size and one range of each file
            assert run["records_per_s"] > 0
    assert found["runs"]["50"]["this"][0]["first_s"] > 0.1  # two answers
    assert all(found["runs"]["50"]["this"][0][f"{key}_s"] > 0.04 for key in remote.QUESTIONS)  # an answer
    assert set(found["ratios"]) == {"0", "50"}
    printed = capsys.readouterr().out
    assert "50 ms, other" in printed
    assert "first list" in printed
    assert "goal >= 2000, <= 64 requests:" in printed


def test_a_run_that_fails_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gpupipe").mkdir()
    (tmp_path / "gpupipe" / "__init__.py").write_text("raise RuntimeError('no such chain')")
    words = ["remote", "--pairs", "1", "--latencies", "0", "--each", "1", "--against", str(tmp_path)]
    assert command.main([*words, "--out", str(tmp_path / "out")]) == 2
    assert "no such chain" in capsys.readouterr().err
    assert not list(tmp_path.glob("out/*.json"))


def test_other_records_are_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = iter("ab")
    run = {"records_per_s": 1.0, "first_s": 1.0, "cpu_ms": 1.0, "requests": 1}
    monkeypatch.setattr(remote, "_measure", lambda *_: {**run, "digest": next(digests)})
    with pytest.raises(UnequalWork, match="different records"):
        remote.remote(tmp_path / "out", tmp_path, latencies=(0,), each=1, pairs=2)
