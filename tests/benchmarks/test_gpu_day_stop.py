"""How the command of the day is stopped, refused and cut off, and that nothing of it stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from benchmarks.gpu_day.ledger import Ledger
from benchmarks.stop import Stopped, stoppable
from tests.benchmarks.days import Write, call, ended, lines, started

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="benchmarks need /proc")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_ends_the_command_and_its_part_with_the_table_and_how_to_go_on(
    write: Write, tmp_path: Path, number: signal.Signals
) -> None:
    folder = write("first", "fine", "hangs", "last")
    (scratch := tmp_path / "scratch").mkdir()
    pipe = subprocess.PIPE
    process = started(folder, tmp_path, "--scratch", str(scratch), at="hangs", stdout=pipe, stderr=pipe)
    while '"question": "fine"' not in (tmp_path / "out" / "gpu-day.jsonl").read_text():
        time.sleep(0.05)
    while not (folder / "child").exists() or not (folder / "child").read_text():
        time.sleep(0.05)
    process.send_signal(number)
    out, err = (text.decode() for text in process.communicate(timeout=60))

    assert process.returncode == 128 + number
    assert "Traceback" not in err
    assert "first (unfinished" in out and "    fine: 1" in out
    assert out.endswith(
        f"stopped by {number.name}; the results so far are kept; the same command continues with first\n"
    )
    assert [*scratch.iterdir()] == []
    assert lines(tmp_path)[-1]["row"] == "called"
    while not ended(int((folder / "child").read_text())):  # killed, but it may not have had its turn yet
        time.sleep(0.05)


def test_an_answer_that_came_while_the_command_was_stopped_counts(write: Write, tmp_path: Path) -> None:
    folder = write("first", "nap", "last", each=2, prelude='kinds["nap"] = lambda: time.sleep(0.5) or 3')
    process = started(folder, tmp_path, at="nap")
    process.send_signal(signal.SIGSTOP)  # as Ctrl-Z does
    time.sleep(3)
    process.send_signal(signal.SIGCONT)

    assert process.wait(60) == 0
    assert Ledger(tmp_path / "out" / "gpu-day.jsonl").of("first").answers == {"nap": 3, "last": 2}


def test_a_parent_that_ignores_the_end_of_its_children_is_no_example(write: Write, tmp_path: Path) -> None:
    write("one", "fine", "exits", "last")
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert call(tmp_path) == 0
        assert signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGCHLD, before)

    found = Ledger(tmp_path / "out" / "gpu-day.jsonl").of("one")
    assert (found.answers, found.failures) == ({"fine": 1, "last": 2}, {"exits": "ended with 3"})


def test_a_reader_that_has_seen_enough_is_no_failure(write: Write, tmp_path: Path) -> None:
    folder = write("first", "fine")
    read, wrote = os.pipe()
    os.close(read)
    process = started(folder, tmp_path, at="", stdout=wrote, stderr=subprocess.PIPE)
    os.close(wrote)
    _, err = process.communicate(timeout=60)

    assert (process.returncode, err.decode()) == (0, "first: a part of a test ...\n")


def test_a_day_goes_on_when_nobody_reads_what_it_says(write: Write, tmp_path: Path) -> None:
    folder = write("first", "fine")
    read, wrote = os.pipe()
    os.close(read)
    process = started(folder, tmp_path, at="", stdout=wrote, stderr=wrote)
    os.close(wrote)

    assert process.wait(60) == 0
    assert Ledger(tmp_path / "out" / "gpu-day.jsonl").of("first").answers == {"fine": 1}


@pytest.mark.parametrize("minutes", ["nan", "-1", "0", "inf", "1e308", "soon"])
@pytest.mark.parametrize("option", ["--minutes", "--call-minutes"])
def test_minutes_are_a_number_above_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, minutes: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        call(tmp_path, f"{option}={minutes}")

    assert f"argument {option}: needs a number of minutes above 0, got {minutes}" in capsys.readouterr().err


def test_folders_that_are_none_are_one_line(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write("one", "fine")
    (file := tmp_path / "file").write_text("")

    def said(*words: str) -> str:
        assert call(tmp_path, *words) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    for out in (file, file / "deeper"):
        for words in ((), ("--report",), ("--list",)):
            assert said("--out", str(out), *words) == (
                f"gpu-day: --out needs a folder, got {out}, which is a file or in one"
            )
    for scratch in (file, tmp_path / "none"):
        assert said("--scratch", str(scratch)) == (
            f"gpu-day: --scratch needs a folder that exists and can be written to, got {scratch}"
        )
    results = tmp_path / "out" / "gpu-day.jsonl"
    results.mkdir(parents=True)
    assert said() == f"gpu-day: cannot read the results in {results}: Is a directory"


def test_results_that_cannot_be_written_are_one_line(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write("one", "fine")
    out = tmp_path / "out"
    out.mkdir()
    (out / "gpu-day.jsonl").symlink_to(tmp_path / "none" / "gpu-day.jsonl")

    assert call(tmp_path) == 2
    assert capsys.readouterr().err == (
        f"gpu-day: cannot write the results to {out / 'gpu-day.jsonl'}: No such file or directory\n"
    )


def test_a_group_is_killed_only_while_nobody_else_can_have_its_number(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill, held = os.killpg, []

    def killpg(pid: int, number: int) -> None:
        held.append(Path(f"/proc/{pid}").exists())  # alive or a zombie
        kill(pid, number)

    monkeypatch.setattr(os, "killpg", killpg)
    folder = write("odd", "fine", "crashes", "hangs", "last", each=2)

    assert call(tmp_path) == 0

    assert len(held) >= 3 and all(held)
    assert ended(int((folder / "child").read_text()))


def test_a_line_that_is_being_written_is_finished_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = os.fsync

    def fsync(file: int) -> None:
        os.kill(os.getpid(), signal.SIGTERM)  # any thread of the process may take it
        time.sleep(0.05)
        sync(file)

    monkeypatch.setattr(os, "fsync", fsync)
    ledger = Ledger(tmp_path / "gpu-day.jsonl")

    other = threading.Thread(target=(done := threading.Event()).wait)
    other.start()
    with pytest.raises(Stopped, match="stopped by SIGTERM"), stoppable():
        ledger.write("answer", part="one", question="fine", value=1, seconds=1)
    done.set()
    other.join()

    assert ledger.of("one").answers == Ledger(ledger.path).of("one").answers == {"fine": 1}


def test_a_second_signal_disturbs_nobody_who_tidies_up_and_an_ignored_one_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    tidied = False
    try:
        with pytest.raises(Stopped, match="stopped by SIGINT") as stop, stoppable():
            signal.raise_signal(signal.SIGHUP)
            try:
                signal.raise_signal(signal.SIGINT)
            finally:
                signal.raise_signal(signal.SIGTERM)
                tidied = True
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)

    assert (tidied, stop.value.status) == (True, 130)
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
