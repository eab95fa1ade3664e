"""The day on a GPU machine: a failure is a line and not the end, no result is lost, and its parts run on the CPU."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.gpu_day import outcomes, parts, plan, run
from benchmarks.gpu_day.day import ROOT, Day
from benchmarks.gpu_day.ledger import Ledger
from benchmarks.gpu_day.parts import suite
from benchmarks.process import resident_bytes
from gpupipe.transform.machine import has_dali

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="benchmarks need /proc")
needs_dali = pytest.mark.skipif(not has_dali(), reason="DALI is not installed")

PART = """
import os, signal, subprocess
from pathlib import Path
from benchmarks.gpu_day.plan import Part
PART = Part("odd", "a part of a test", 100, int(os.environ["EACH"]), least=0, needs=(), gpu="no")
KINDS = {"fine": lambda: [os.getpid(), str(Path.home() / "x")], "raises": lambda: [][0],
         "hangs": lambda: subprocess.run(["bash", "-c", f"echo $$ > {__file__}.child; exec sleep 100"]),
         "crashes": lambda: os.kill(os.getpid(), signal.SIGSEGV), "last": lambda: 2}
def questions(day):
    return KINDS
def summary(answers):
    return [f"{name}: {value}" for name, value in answers.items()]
"""
FAILURES = {"raises": "IndexError: list index out of range", "hangs": "no answer within 2 s",
            "crashes": "ended by SIGSEGV"}  # fmt: skip


def called(folder: Path, patch: pytest.MonkeyPatch, *words: str, each: int = 2) -> tuple[int, Ledger]:
    """The status and the results of the command with one part, whose questions end in many ways."""
    start = f"from benchmarks.gpu_day import child, parts; parts.__path__ = [{str(folder)!r}]; exit(child.main())"
    (folder / "odd.py").write_text(PART)
    (folder / "child.py").write_text(start)
    patch.setattr(parts, "__path__", [str(folder)])
    patch.setattr(plan, "ORDER", ("odd",))
    patch.setattr(run, "CHILD", str(folder / "child.py"))
    patch.setenv("EACH", str(each))
    patch.delitem(sys.modules, "benchmarks.gpu_day.parts.odd", raising=False)
    return command.main(["gpu-day", "--out", str(folder / "out"), *words]), Ledger(folder / "out" / "gpu-day.jsonl")


def test_no_answer_is_lost_by_a_question_that_fails_or_a_day_that_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop() -> None:
        while not child.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    child = tmp_path / "odd.py.child"
    threading.Thread(target=stop, daemon=True).start()
    status, ledger = called(tmp_path, monkeypatch, each=60)
    before = ledger.of("odd").answers
    assert (status, list(before), before["fine"][1]) == (128 + signal.SIGTERM, ["fine"], "x")
    with ledger.path.open("a") as file:
        file.write('{"row": "greeting"}\n{"row": "answer", "part": "odd", "quest')  # of another program; torn

    status, ledger = called(tmp_path, monkeypatch)
    found, said = ledger.of("odd"), capsys.readouterr()
    assert (status, found.state, found.answers, found.failures) == (0, "done", {**before, "last": 2}, FAILURES)
    assert len(ledger.calls) == 2 and "2 lines are not results" in said.err and "FAILED crashes: ended" in said.out
    while resident_bytes(int(child.read_text())):  # killed, but it may not have had its turn yet
        time.sleep(0.05)

    again = called(tmp_path, monkeypatch, "--again", "odd", "--minutes", "0.01")[1].of("odd")
    assert again.waits and again.shown().answers == found.answers  # until there are new ones


@needs_dali
@pytest.mark.parametrize("name", [name for name in plan.ORDER if name not in ("capture", "fork", "bench")])
def test_a_part_answers_all_of_its_questions_on_the_cpu(name: str, tmp_path: Path) -> None:
    day = Day(dry=True, has_gpu=False, out=str(tmp_path), folder=str(tmp_path))
    if why := plan.part(name).missing(day):
        pytest.skip(why)

    answers = {question: ask() for question, ask in plan.module_of(name).questions(day).items()}

    assert plan.module_of(name).summary(json.loads(json.dumps(answers, default=str)))
    assert name != "suite" or (answers["the stand-in"]["passed"] > 5 and not answers["the stand-in"]["failed"])


@needs_dali
def test_parts_that_need_processes_of_their_own_are_done_in_a_dry_run(tmp_path: Path) -> None:
    assert command.main(["gpu-day", "--dry", "--only", "fork,bench", "--out", str(tmp_path)]) == 0
    assert [Ledger(tmp_path / "gpu-day-dry.jsonl").of(name).state for name in ("fork", "bench")] == ["done", "done"]


def test_every_part_has_its_place_in_the_plan() -> None:
    found = {path.stem for path in Path(suite.__file__).parent.glob("*.py")}
    assert set(plan.ORDER) == found - {"__init__"}


def test_the_outcomes_of_tests_are_read_line_by_line(tmp_path: Path) -> None:
    lines = [("a", "began"), ("a", "passed"), ("b", "began"), ("b", "failed"), ("b", "passed"), ("c", "began")]
    (tmp_path / "notes").write_text("".join(json.dumps({"test": one, "outcome": how}) + "\n" for one, how in lines))

    assert outcomes.read(tmp_path / "notes") == {"passed": 1, "skipped": 0, "failed": {"b": ""}, "unfinished": ["c"]}


def test_the_suite_names_every_folder_with_a_test_marked_gpu() -> None:
    texts = {path.relative_to(ROOT): path.read_text() for path in (ROOT / "tests").rglob("*.py")}
    marked = {path for path, text in texts.items() if re.search(r"pytest\.mark\.gpu\b", text)}
    helpers = [".".join(path.with_suffix("").parts) for path in marked if not path.name.startswith("test_")]
    assert len(helpers) == 2  # lists of executors, one of them marked
    parameters = re.compile(rf"from ({'|'.join(map(re.escape, helpers))}) import .*\bEXECUTORS\b")
    marked |= {path for path, text in texts.items() if parameters.search(text)}

    assert set(suite.FOLDERS) == {str(path.parent) for path in marked if path.name.startswith("test_")}
