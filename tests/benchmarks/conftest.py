"""The fixtures of the benchmarks' tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.gpu_day import command as day_command
from benchmarks.gpu_day import parts, plan, run
from benchmarks.gpu_day.day import Day
from benchmarks.probe import write_probes
from tests.benchmarks.days import PART, Write


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Makes parts of questions that end in many ways; they are all there is."""
    folder = tmp_path / "parts"
    folder.mkdir()
    monkeypatch.setattr(parts, "__path__", [str(folder)])
    monkeypatch.setattr(plan, "ORDER", ())
    child = tmp_path / "child.py"
    child.write_text(
        f"import sys; from benchmarks.gpu_day import child, parts; parts.__path__ = [{str(folder)!r}]; "
        "sys.exit(child.main())"
    )
    monkeypatch.setattr(run, "CHILD", str(child))
    monkeypatch.setattr(day_command, "gpus", list)

    def make(name: str, *asks: str, seconds: float = 100, each: float = 100, prelude: str = "") -> Path:
        text = PART.format(name=name, asks=asks, seconds=seconds, each=each, prelude=prelude)
        (folder / f"{name}.py").write_text(text)
        monkeypatch.setattr(plan, "ORDER", (*plan.ORDER, name))
        monkeypatch.delitem(sys.modules, f"benchmarks.gpu_day.parts.{name}", raising=False)
        return folder

    return make


@pytest.fixture
def shards(tmp_path: Path) -> str:
    """The pattern of two shards of 64 probes."""
    folder = tmp_path / "shards"
    folder.mkdir()
    write_probes(folder, 64, 2)
    return f"{folder}/*.tfrecord"


@pytest.fixture
def day(tmp_path: Path) -> Day:
    return Day(dry=True, has_gpu=False, out=str(tmp_path), folder=str(tmp_path))


@pytest.fixture
def wet(tmp_path: Path) -> Day:
    return Day(dry=False, has_gpu=True, out=str(tmp_path / "out"), folder=str(tmp_path))
