"""What the results of the day hold, of which commit and machine they are, and what the table makes of it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_day import command as day_command
from benchmarks.gpu_day import ledger as ledger_module
from benchmarks.gpu_day.command import LEFT
from benchmarks.gpu_day.day import ROOT
from benchmarks.gpu_day.ledger import Ledger
from benchmarks.machine import machine
from tests.benchmarks.days import Write, call, lines

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="benchmarks need /proc")

CALL: dict[str, Any] = {"commit": "a" * 40, "machine": {"gpus": ["a card"]}, "versions": {}, "dry": False}
ANSWER: dict[str, Any] = {"row": "answer", "part": "one", "question": "fine", "value": 1, "seconds": 0.5}


def on(patch: pytest.MonkeyPatch, commit: str, *cards: str) -> None:
    """From now on, calls are on that commit and machine."""
    patch.setattr(day_command, "commit", lambda: commit)
    patch.setattr(day_command, "machine", lambda: {**machine(), "gpus": list(cards)})


def part_of(table: str, name: str) -> list[str]:
    """The lines of a part in a table."""
    rows = table.splitlines()
    start = next(i for i, row in enumerate(rows) if row.startswith(f"{name} ("))
    end = next((i for i, row in enumerate(rows[start + 1 :], start + 1) if not row.startswith(" ")), len(rows))
    return rows[start:end]


def test_the_table_says_which_parts_are_of_another_commit_or_machine(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("one", "fine", "raises")
    write("two", "last")
    write("three", "fine")
    on(monkeypatch, "a" * 40, "an old card")
    assert call(tmp_path, "--only", "one") == 0
    on(monkeypatch, "a" * 40 + "+changes", "a new card")
    assert call(tmp_path, "--only", "two") == 0
    on(monkeypatch, "b" * 40, "a new card")
    capsys.readouterr()

    assert call(tmp_path, "--only", "three") == 0
    said = capsys.readouterr()
    assert call(tmp_path, "--report") == 0
    reported = capsys.readouterr().out

    assert said.out == reported
    assert "measured on another commit or machine than this one: one, two; --again one,two repeats them" in said.err
    assert reported.startswith(f"a new card; commit {'b' * 12}; 3 calls")
    assert f"    NOT MEASURED AS ABOVE, but with commit {'a' * 12}; an old card: all" in part_of(reported, "one")
    assert f"    NOT MEASURED AS ABOVE, but with commit {'a' * 12}+changes: all" in part_of(reported, "two")
    assert "NOT MEASURED" not in "".join(part_of(reported, "three"))
    assert reported.endswith("not of the commit and machine above: one, two; --again one,two repeats them\n")

    assert call(tmp_path, "--again", "one,two") == 0
    said = capsys.readouterr()
    assert "another commit" not in said.err and "NOT MEASURED" not in said.out and "--again" not in said.out


def test_a_part_that_two_machines_answered_names_the_questions_of_each(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("one", "fine", "last")
    on(monkeypatch, "b" * 40, "a new card")
    Ledger(path := tmp_path / "out" / "gpu-day.jsonl").write("call", **CALL)
    Ledger(path).write(**ANSWER)

    assert call(tmp_path) == 0

    assert f"    NOT MEASURED AS ABOVE, but with commit {'a' * 12}; a card" in capsys.readouterr().out
    assert Ledger(path).of("one").calls["fine"]["commit"] == "a" * 40
    assert Ledger(path).of("one").calls["last"]["commit"] == "b" * 40


def test_each_row_names_its_call_wherever_it_stands(write: Write, tmp_path: Path) -> None:
    write("one", "fine", "raises")
    write("two", "last")
    assert call(tmp_path, "--only", "one") == 0
    assert call(tmp_path) == 0
    path = tmp_path / "out" / "gpu-day.jsonl"
    first, second = [row for row in lines(tmp_path) if row["row"] == "call"]

    assert {row["call"] for row in lines(tmp_path) if row.get("part") == "one"} == {first["call"]}
    assert {row["call"] for row in lines(tmp_path) if row.get("part") == "two"} == {second["call"]}
    rows = path.read_text().splitlines()
    path.write_text("\n".join([row for row in rows if '"row": "call"' in row]
                              + [row for row in rows if '"row": "call"' not in row]) + "\n")  # fmt: skip
    assert Ledger(path).of("one").calls["fine"] == first
    path.write_text("\n".join(row for row in rows if row != rows[0]) + "\n")  # the line of its call is lost
    assert Ledger(path).of("one").calls["fine"] == {}


def test_a_row_without_a_call_is_of_the_call_above_it(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write("one", "fine")
    path = tmp_path / "out" / "gpu-day.jsonl"
    path.parent.mkdir()
    rows = [{"row": "call", **CALL}, ANSWER, {"row": "call", **CALL, "commit": "b" * 40}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    assert call(tmp_path, "--report") == 0
    assert f"NOT MEASURED AS ABOVE, but with commit {'a' * 12}: all" in capsys.readouterr().out


@pytest.mark.parametrize("words", [("--minutes", "0.01"), ("--only", "two")], ids=["no time", "not chosen"])
def test_what_is_to_be_asked_again_keeps_its_answers_until_there_are_new_ones(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    folder = write("one", "fine", "raises")
    write("two", "last")
    assert call(tmp_path) == 0
    capsys.readouterr()

    call(tmp_path, "--again", "one", *words)
    call(tmp_path, "--again", "one", *words)  # twice is no more than once
    table = capsys.readouterr().out
    assert call(tmp_path, "--list") == 0
    listed = capsys.readouterr().out

    old = part_of(table, "one")
    assert old[0].startswith("one (done, to be repeated, ")
    assert "    fine: 1" in old and "    FAILED raises: ValueError: no such kernel" in old
    assert "[to be repeated]" in listed.splitlines()[0]
    assert call(tmp_path) == 0
    assert (folder / "asked").read_text().split() == ["fine", "raises", "last", "fine", "raises"]
    assert "again" not in capsys.readouterr().out


def test_a_call_that_leaves_out_what_it_was_to_ask_again_goes_on_without_again(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write("one", "fine")
    assert call(tmp_path) == 0

    assert call(tmp_path, "--again", "one", "--call-minutes", "0.01") == LEFT
    assert "left out: one; the same command without --again continues with them" in capsys.readouterr().out
    assert call(tmp_path) == 0
    assert (folder / "asked").read_text().split() == ["fine", "fine"]


def test_an_old_answer_stays_beside_the_new_ones_of_a_part_that_is_not_through(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write("one", "fine", "last")
    path = tmp_path / "out" / "gpu-day.jsonl"
    assert call(tmp_path) == 0
    ledger = Ledger(path)
    ledger.write("again", part="one")
    ledger.write("failure", part="one", question="fine", how="ended by SIGSEGV", seconds=1)
    capsys.readouterr()

    assert call(tmp_path, "--report") == 0
    rows = part_of(capsys.readouterr().out, "one")
    assert rows[0].startswith("one (unfinished")
    assert rows[1:] == ["    last: 2", "    FAILED fine: ended by SIGSEGV", "    from before it was repeated: last"]

    assert call(tmp_path) == 0
    assert part_of(capsys.readouterr().out, "one")[1:] == ["    last: 2", "    FAILED fine: ended by SIGSEGV"]


NO_RESULTS: dict[str, bytes] = {
    "null": b"null",
    "a number": b"5",
    "a list": b"[]",
    "empty": b"{}",
    "an unknown row": b'{"row": "greeting"}',
    "a row of no name": b'{"row": ["call"]}',
    "no UTF-8": b'{"row": "again", "part": "\xff"}',
    "cut short": b'{"row": "ans',
    "deep": b"[" * 100_000,
    "no machine": b'{"row": "call", "commit": "a", "versions": {}, "dry": false, "machine": {}}',
    "no question": b'{"row": "answer", "part": "one", "value": 1, "seconds": 1}',
    "no number of seconds": b'{"row": "called", "seconds": NaN}',
    "a number that no float can hold": b'{"row": "called", "seconds": 1' + b"0" * 400 + b"}",
    "a state nobody knows": b'{"row": "end", "part": "one", "state": "fine", "ending": "", "stderr": ""}',
    "a call that is no number": json.dumps({**ANSWER, "call": "first"}).encode(),
}


@pytest.mark.parametrize("line", NO_RESULTS.values(), ids=NO_RESULTS)
def test_lines_that_are_no_results_are_passed_over_with_one_warning(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: bytes
) -> None:
    folder = write("one", "fine")
    assert call(tmp_path) == 0
    with (tmp_path / "out" / "gpu-day.jsonl").open("ab") as file:
        file.write(line + b"\n\n" + line + b"\n")
    capsys.readouterr()

    assert call(tmp_path) == 0

    said = capsys.readouterr()
    assert said.err.splitlines() == ["gpu-day.jsonl: 2 lines are not results and are skipped, the first is line 5"]
    assert "    fine: 1" in said.out
    assert (folder / "asked").read_text().split() == ["fine"]


def test_answers_that_a_part_cannot_lay_out_cost_the_others_no_line(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write("one", "fine")
    write("two", "last")
    text = (folder / "one.py").read_text()
    (folder / "one.py").write_text(text.replace("    return [f", "    answers['of today']\n    return [f"))

    assert call(tmp_path) == 0

    table = capsys.readouterr().out
    assert "its answers cannot be shown (KeyError: 'of today')" in table and "    last: 2" in table


@pytest.mark.parametrize(
    ("encoding", "shown"), [("latin-1", r"\u20ac \udcff"), ("utf-8", "\u20ac \\udcff")], ids=["latin-1", "utf-8"]
)
def test_what_a_terminal_cannot_show_is_no_end_of_the_day(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, shown: str
) -> None:
    write("one", "odd name", prelude='kinds["odd name"] = lambda: "\\u20ac \\udcff"')
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(seen := io.BytesIO(), encoding=encoding))

    assert call(tmp_path) == 0

    assert f"    odd name: {shown}\n" in seen.getvalue().decode(encoding)


def test_private_folders_are_cut_out_of_values_and_names_whatever_their_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "_PRIVATE", ('/home/zo\u00eb "z"/',))
    path = tmp_path / "gpu-day.jsonl"
    value = {'/home/zo\u00eb "z"/a': ['/home/zo\u00eb "z"/b', 1, None]}

    Ledger(path).write("answer", part="one", question="fine", value=value, seconds=1)

    assert json.loads(path.read_text())["value"] == {"a": ["b", 1, None]}


def test_nobody_needs_a_home() -> None:
    script = (
        "import pwd\n"
        "def none(uid): raise KeyError(uid)\n"
        "pwd.getpwuid = none\n"
        "from benchmarks.gpu_day import ledger\n"
        "print(all(folder.startswith('/') for folder in ledger._PRIVATE))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "HOME"}

    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
