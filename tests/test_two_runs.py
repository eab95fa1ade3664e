"""`python -m tests`: what of it holds for both of its runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TESTS = """
import time
from pathlib import Path
import pytest
HERE = Path(__file__).parent
@pytest.fixture
def slow_to_end():
    (HERE / "began").touch()
    yield
    time.sleep(1)
    (HERE / "tidied").touch()
def test_long(slow_to_end):
    time.sleep({seconds})
    assert {good}
def test_next():
    (HERE / "next").touch()
@pytest.mark.alone
def test_alone():
    (HERE / "alone").touch()
"""


def started(folder: Path, *words: str, seconds: float = 0, good: bool = True) -> subprocess.Popen[str]:
    """The command over one file of tests, in one process."""
    (folder / "test_it.py").write_text(TESTS.format(seconds=seconds, good=good))
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    alone\n")
    usual = ["-n", "0", "-c", str(folder / "pytest.ini"), "-p", "tests.conftest", "-p", "no:cacheprovider"]
    script = f"import sys; from tests.__main__ import main; sys.exit(main({[*usual, *words, str(folder)]!r}, 1))"
    command = [sys.executable, "-c", script]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} & {"began", "tidied", "next", "alone"}


def test_ctrl_c_lets_pytest_tidy_up_and_say_what_it_has_seen(tmp_path: Path) -> None:
    process = started(tmp_path, seconds=60)
    while not (tmp_path / "began").exists():
        time.sleep(0.05)
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, _ = process.communicate(timeout=60)

    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert "KeyboardInterrupt" in out and "1 deselected in" in out
    assert left(tmp_path) == {"began", "tidied"}


def test_both_runs_run_where_a_test_fails_unless_the_first_failure_ends_it(tmp_path: Path) -> None:
    for name, words, ran in (("whole", (), {"next", "alone"}), ("stopped", ("-x",), set[str]())):
        (tmp_path / name).mkdir()
        process = started(tmp_path / name, *words, good=False)
        process.communicate(timeout=60)
        assert process.returncode in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)
        assert left(tmp_path / name) == {"began", "tidied"} | ran
