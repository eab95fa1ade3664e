"""All suites in one command, which goes on with what is left; photographs of other sizes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import data, report
from benchmarks.contestants import CONTESTANTS
from benchmarks.suites import cold_reads, decode, decoders, every, gil

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="benchmarks need /proc")


def test_photographs_of_a_megapixel_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpupipe.extract.images.headers import read_header

    monkeypatch.setattr(data, "SIZES", {1.0: (2, *data.SIZES[1.0][1:])})
    found = data.load("", tmp_path, 1.0)

    assert found.records == 2
    image = read_header(decode.photographs(str(tmp_path / "*.tfrecord"), (), 1)["photographs"][0])
    assert image.height * image.width == pytest.approx(1e6, rel=0.01)


def options(out: Path, **given: Any) -> argparse.Namespace:
    usual = {"out": out, "only": "", "list": False, "dry_run": False, "data": "", "threads": 2}
    return argparse.Namespace(**{**usual, **given})


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Two suites, and one for a GPU; their commands are recorded and write a result, or fail where they are to."""
    ran: list[list[str]] = []

    def run(words: list[str], cwd: Path) -> SimpleNamespace:
        words = words[words.index("benchmarks") + 1 :]
        ran.append(words)
        if words[0] == "bad":
            return SimpleNamespace(returncode=2)
        report.write(report.header(words[0], {}), Path(words[words.index("--out") + 1]))
        return SimpleNamespace(returncode=0)

    suites = (
        every.Suite("one", ("chain",), 1, ("--pairs", "1")),
        every.Suite("two", ("bad",), 1),
        every.Suite("card", ("bench-gpu",), 1, gpu=True),
    )
    monkeypatch.setattr(every, "PLAN", suites)
    monkeypatch.setattr("subprocess.run", run)
    monkeypatch.setattr(every, "gpus", list)
    for place in ("benchmarks.suites.every.commit", "benchmarks.report.commit"):
        monkeypatch.setattr(place, lambda: "abc")
    return ran


def test_all_suites_run_once_for_a_commit_and_go_on_with_what_is_left(
    plan: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert every._run(options(out), tmp_path) == 2
    assert "failed: two" in capsys.readouterr().out
    assert every.done(out) == {"one"}
    assert every._run(options(out), tmp_path) == 2
    text = capsys.readouterr().out
    assert "done: one\nleft: two, about 1 minutes" in text and "card: not measured, no NVIDIA GPU here" in text

    assert [words[0] for words in plan] == ["chain", "bad", "bad"]
    for now in ("abc+changes", "unknown", "another"):
        monkeypatch.setattr(every, "commit", lambda now=now: now)
        assert every.done(out) == set()


def test_a_trial_keeps_nothing_and_a_list_runs_nothing(
    plan: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert every._run(options(tmp_path / "out", list=True), tmp_path) == 0
    assert plan == []
    assert every._run(options(tmp_path / "out", dry_run=True, only="one"), tmp_path) == 0
    assert plan[0][:3] == ["chain", "--pairs", "1"]
    assert not (tmp_path / "out").exists()
    assert every._run(options(tmp_path / "out", only="nobody"), tmp_path) == 2
    assert "--only needs suites out of one; two; card, got nobody" in capsys.readouterr().err


def test_a_result_is_kept_under_a_free_name_with_its_suite(plan: list[list[str]], tmp_path: Path) -> None:
    for name in ("one", "another"):
        assert every.run_suite(every.Suite(name, ("chain",), 1), options(tmp_path / "out"), tmp_path)

    paths = sorted((tmp_path / "out").iterdir())
    assert sorted(json.loads(path.read_text())["suite"] for path in paths) == ["another", "one"]
    assert len({path.name for path in paths}) == 2 and all(path.suffix == ".json" for path in paths)
    assert every.run_suite(every.Suite("one", ("chain",), 1), options(tmp_path / "out", data="x*"), tmp_path)
    assert plan[-1][:3] == ["chain", "--data", "x*"]
    assert every.done(tmp_path / "out") == {"one", "another", "one, --data"}
    larger = every.Suite("larger", ("chain", "--megapixels", "1"), 1)
    assert every.left([larger], tmp_path / "out", "x*") == [larger] and every.label(larger, "x*") == "larger"
    (tmp_path / "out" / "broken.json").write_text("{")
    assert len(every.done(tmp_path / "out")) == 3


@pytest.mark.parametrize("suite", every.PLAN, ids=lambda suite: suite.name)
def test_the_options_of_every_suite_are_known_to_its_command(suite: every.Suite) -> None:
    parser = command._parser()
    given = parser.parse_args([*suite.words, "--out", "x"])
    tiny = parser.parse_args([*suite.words, *suite.tiny, "--out", "x"])

    assert given.command == suite.words[0]
    known = set(CONTESTANTS) | set(decoders.DECODERS) | set(cold_reads.READERS) | set(gil.EXECUTORS) | {"", "all"}
    assert {name for one in (given, tiny) for name in one.contestants.split(",")} <= known


def test_every_command_is_in_the_plan_of_all() -> None:
    assert {suite.words[0] for suite in every.PLAN} == set(command.COMMANDS) - {"all", "gpu-day"}
