"""The day on a GPU machine: what fails is a line of its results and never their end, and a later call goes on."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.gpu_day import command as day_command
from benchmarks.gpu_day import parts, plan
from benchmarks.gpu_day.command import LEFT
from benchmarks.gpu_day.ledger import Ledger
from tests.benchmarks.days import Write, call, ended, lines, started

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="benchmarks need /proc")


def test_a_question_that_fails_crashes_or_hangs_is_a_line_and_the_others_are_answered(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asks = ("fine", "raises", "crashes", "exits", "leaves", "hangs", "last")
    folder = write("odd", *asks, each=3)
    write("even", "fine")

    assert call(tmp_path) == 0

    rows = lines(tmp_path)
    answers = {(row["part"], row["question"]): row["value"] for row in rows if row["row"] == "answer"}
    failures = {row["question"]: row for row in rows if row["row"] == "failure"}
    assert answers == {("odd", "fine"): 1, ("odd", "last"): 2, ("even", "fine"): 1}
    assert failures.keys() == {"raises", "crashes", "exits", "leaves", "hangs"}
    assert failures["raises"]["how"] == "ValueError: no such kernel"
    assert "in raises" in failures["raises"]["stderr"]
    assert failures["crashes"]["how"] == "ended by SIGSEGV"
    assert "Fatal Python error: Segmentation fault" in failures["crashes"]["stderr"]
    assert failures["exits"]["how"] == "ended with 3"
    assert failures["leaves"]["how"] == "ended without an answer"
    assert failures["hangs"]["how"] == "no answer within 3 s"
    assert "in hangs" in failures["hangs"]["stderr"]  # where it hung
    assert ended(int((folder / "child").read_text()))
    assert (folder / "asked").read_text().split() == [*asks, "fine"]
    assert [row["state"] for row in rows if row["row"] == "end"] == ["done", "done"]
    printed = capsys.readouterr().out
    assert "odd (done" in printed and "FAILED crashes: ended by SIGSEGV" in printed


def test_a_part_whose_questions_share_no_process_starts_one_for_each(write: Write, tmp_path: Path) -> None:
    asks = ("a", "raises", "b", "last")
    folder = write("one", *asks, prelude="kinds['a'] = kinds['b'] = kinds['last'] = os.getpid")
    text = (folder / "one.py").read_text()
    (folder / "one.py").write_text(text.replace('gpu="no")', 'gpu="no", alone=True)'))

    assert call(tmp_path) == 0

    found = Ledger(tmp_path / "out" / "gpu-day.jsonl").of("one")
    assert (folder / "asked").read_text().split() == [*asks]
    assert len(set(found.answers.values())) == 3
    assert (found.state, set(found.failures)) == ("done", {"raises"})


def test_a_part_that_cannot_begin_and_one_that_crashes_behind_its_last_answer_say_so(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write("broken", "fine", prelude="raise ImportError('libcuda.so.1')")
    write("late", "fine", prelude="import atexit; atexit.register(os.kill, os.getpid(), signal.SIGSEGV)")
    write("last", "fine")

    assert call(tmp_path) == 0

    ends = {row["part"]: row for row in lines(tmp_path) if row["row"] == "end"}
    assert (ends["broken"]["state"], ends["broken"]["ending"]) == ("crashed", "ended with 1")
    assert "ImportError: libcuda.so.1" in ends["broken"]["stderr"]
    assert (ends["late"]["state"], ends["late"]["ending"]) == ("done", "ended by SIGSEGV")
    assert ends["last"]["state"] == "done"
    assert "ImportError: libcuda.so.1" in capsys.readouterr().out


def test_a_part_has_no_more_time_than_it_is_given(write: Write, tmp_path: Path) -> None:
    write("long", "fine", "slow", "last", seconds=6)
    write("next", "fine")

    assert call(tmp_path) == 0

    rows = lines(tmp_path)
    assert [(row["part"], row["state"]) for row in rows if row["row"] == "end"] == [
        ("long", "out of time"), ("next", "done"),
    ]  # fmt: skip
    assert [row["question"] for row in rows if row["row"] == "answer"] == ["fine", "fine"]


def test_a_question_knows_when_its_process_is_ended(write: Write, tmp_path: Path) -> None:
    write("one", "left", seconds=50, prelude="kinds['left'] = lambda: day.until - time.monotonic()")

    assert call(tmp_path) == 0

    assert 0 < Ledger(tmp_path / "out" / "gpu-day.jsonl").of("one").answers["left"] <= 50


def test_a_call_ends_before_its_limit_and_the_next_one_goes_on(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(day_command, "_MARGIN", 0.0)
    folder = write("first", "fine", "slow", "last")
    write("second", "fine")

    assert call(tmp_path, "--call-minutes", "0.1") == LEFT
    assert "left out: first, second; the same command continues with them" in capsys.readouterr().out
    (folder / "quick").touch()
    assert call(tmp_path) == 0
    assert call(tmp_path) == 0

    assert (folder / "asked").read_text().split() == ["fine", "slow", "slow", "last", "fine"]
    rows = lines(tmp_path)
    assert [row["value"] for row in rows if row["row"] == "answer"] == [1, "slow", 2, 1]
    assert [row["row"] for row in rows if row["row"].startswith("call")] == ["call", "called"] * 3


def test_the_minutes_of_all_calls_together_are_kept(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write("one", "fine")
    out = tmp_path / "out"
    ledger = Ledger(out / "gpu-day.jsonl")
    ledger.write("called", seconds=1500.0, left=["one"])

    assert call(tmp_path, "--minutes", "25") == LEFT
    assert "left out: one; the 25 minutes are over: pass more --minutes" in capsys.readouterr().out
    assert not (folder / "asked").exists()
    assert call(tmp_path, "--minutes", "30") == 0


def test_what_was_known_survives_the_end_of_the_command(write: Write, tmp_path: Path) -> None:
    folder = write("first", "fine", "slow", "last")
    path = tmp_path / "out" / "gpu-day.jsonl"
    process = started(folder, tmp_path)
    while '"question": "fine"' not in path.read_text():
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)

    assert process.wait(60) == 128 + signal.SIGTERM
    with path.open("a") as file:
        file.write('{"row": "answer", "part": "first", "quest')  # a line that was not finished
    (folder / "quick").touch()
    assert call(tmp_path) == 0
    assert (folder / "asked").read_text().split() == ["fine", "slow", "slow", "last"]
    ledger = Ledger(path)
    assert ledger.of("first").answers == {"fine": 1, "slow": "slow", "last": 2}
    assert len(ledger.calls) == 2


def test_a_part_ends_with_a_command_that_is_killed(write: Write, tmp_path: Path) -> None:
    folder = write("first", "slow", prelude="(HERE / 'pid').write_text(str(os.getpid()))")
    process = started(folder, tmp_path)
    process.kill()
    process.wait(60)

    while not ended(int((folder / "pid").read_text())):
        time.sleep(0.05)


def test_some_parts_alone_and_again(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write("one", "fine", "raises")
    write("two", "last")

    assert call(tmp_path, "--only", "one") == 0
    assert "not run: two" in capsys.readouterr().out
    assert call(tmp_path, "--only", "two", "--again", "one") == 0
    assert call(tmp_path) == 0

    assert (folder / "asked").read_text().split() == ["fine", "raises", "last", "fine", "raises"]
    with pytest.raises(SystemExit):
        call(tmp_path, "--only", "three")
    assert "needs parts out of one, two, got three" in capsys.readouterr().err


def test_the_plan_and_the_report_run_nothing(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write("one", "fine")
    write("two", "last")
    assert call(tmp_path, "--only", "one") == 0
    capsys.readouterr()

    assert call(tmp_path, "--list") == 0
    listed = capsys.readouterr().out
    assert call(tmp_path, "--report") == 0
    reported = capsys.readouterr().out

    assert [line.split()[0] for line in listed.splitlines()[:2]] == ["one", "two"]
    assert "[done]" in listed.splitlines()[0]
    assert "one (done" in reported and "fine: 1" in reported and "not run: two" in reported
    assert (folder / "asked").read_text().split() == ["fine"]


def test_results_name_no_folder_of_the_machine(write: Write, tmp_path: Path) -> None:
    write("one", "raises", "places", prelude="print(__import__('benchmarks').__file__, *kinds['places']())")

    assert call(tmp_path) == 0

    text = (tmp_path / "out" / "gpu-day.jsonl").read_text()
    assert "benchmarks/__init__.py" in text
    assert str(Path(command.__file__).parent.parent) not in text
    assert sys.prefix not in text
    assert str(Path.home() / "x") not in text


def test_an_answer_that_is_no_json_is_written_as_text(write: Write, tmp_path: Path) -> None:
    write("one", "no JSON")

    assert call(tmp_path) == 0

    assert Ledger(tmp_path / "out" / "gpu-day.jsonl").of("one").answers == {"no JSON": ["<class 'object'>", {"a": 1}]}


def test_a_part_that_needs_a_gpu_or_a_module_says_so_and_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(day_command, "gpus", list)

    assert call(tmp_path, "--only", "pixels,capture") == 0
    assert "pixels (needs an NVIDIA GPU, 0 s)" in capsys.readouterr().out

    monkeypatch.setattr(day_command, "gpus", lambda: ["a card"])
    monkeypatch.setattr(plan, "has_module", lambda name: name != "torch")
    asked: list[str] = []
    monkeypatch.setattr(day_command, "run_part", lambda part, *_: asked.append(part.name))
    assert call(tmp_path, "--only", "pixels,capture") == LEFT
    assert asked == ["pixels"]
    assert "capture (not installed: torch, 0 s)" in capsys.readouterr().out


def test_every_part_of_the_plan_has_its_file_and_the_order_names_all() -> None:
    folder = Path(parts.__file__).parent

    assert sorted(plan.ORDER) == sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    for part in plan.all_parts():
        assert part.each <= part.seconds and part.least <= part.seconds and part.asks
        assert plan.module_of(part.name).PART is part
