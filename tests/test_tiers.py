"""What `python -m tests` leaves out: by the rule of selection.py, for want of a library, or as it passed before."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpupipe.transform.machine import has_dali

ROOT = Path(__file__).resolve().parent.parent
TESTS = """
import pytest
@pytest.mark.parametrize("a", [1, 2])
@pytest.mark.parametrize("b", ["x", "y", "z"])
def test_slow(a, b): pass
@pytest.mark.parametrize("a", range(9))
def test_cheap(a): pass
def test_endless(): pass
@pytest.mark.programs
def test_random(): pass
"""
TIMINGS = '{"test_it.py::test_slow": 0.12, "test_it.py::test_endless": 3.5, "test_it.py::test_random": 20}'
CONFTEST = """
from pathlib import Path
import tests.selection
tests.selection.TIMINGS = Path(__file__).with_name("timings.json")
"""


def run(folder: Path, tests: str, *more: str, **environment: str) -> str:
    """The outcome of each test in a folder, as pytest prints it."""
    for name, text in {"test_it.py": tests, "timings.json": TIMINGS, "conftest.py": CONFTEST}.items():
        (folder / name).write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    alone\n    gpu\n    programs\n    installed\n")
    words = [sys.executable, *"-m pytest -v -rA -p tests.conftest -p no:cacheprovider test_it.py".split(), *more]
    asked = ("GPUPIPE_QUICK", "GPUPIPE_ALL_LIBRARIES")
    settings = {name: value for name, value in os.environ.items() if name not in asked} | environment
    settings["PYTHONPATH"] = str(ROOT)
    return subprocess.run(words, cwd=folder, env=settings, capture_output=True, text=True, timeout=100).stdout


def passed(output: str) -> list[str]:
    return sorted(set(re.findall(r"^PASSED test_it\.py::test_(\S+)", output, re.MULTILINE)))


def test_the_selection_gives_each_function_half_a_second_and_each_value_of_a_parameter_first(tmp_path: Path) -> None:
    """Four items of 0.12 seconds: those in which each value of `a` and of `b` comes for the first time."""
    slow = ["slow[x-1]", "slow[x-2]", "slow[y-1]", "slow[z-1]"]

    assert passed(run(tmp_path, TESTS, GPUPIPE_QUICK="1")) == [*(f"cheap[{n}]" for n in range(9)), "random", *slow]
    assert len(passed(run(tmp_path, TESTS))) == 6 + 9 + 2


def test_a_missing_library_skips_a_test_or_fails_it_where_all_have_to_be_there(tmp_path: Path) -> None:
    inside = "import pytest\ndef test_it(): pytest.importorskip('no_such_library')"
    around = "import pytest\npytest.importorskip('no_such_library')\ndef test_it(): pass"

    for tests in (inside, around):
        assert "1 skipped" in run(tmp_path, tests)
        assert re.search(r"1 (failed|error)", run(tmp_path, tests, GPUPIPE_ALL_LIBRARIES="1"))
    fine = "import pytest\n@pytest.mark.skip(reason='needs a GPU')\ndef test_it(): pass"
    assert "1 skipped" in run(tmp_path, fine, GPUPIPE_ALL_LIBRARIES="1")


def test_what_passed_before_is_not_run_again(tmp_path: Path) -> None:
    tests = """
import pytest
def test_good(): pass
def test_skipped(): pytest.skip("no")
@pytest.fixture
def bad_end():
    yield
    assert not "yet"
def test_bad_end(bad_end): pass
@pytest.mark.installed
def test_what_is_installed(): pass
"""
    note = str(tmp_path / "passed")

    first, second = (run(tmp_path, tests, "--passed", note) for _ in range(2))

    assert passed(first) == ["bad_end", "good", "what_is_installed"]
    assert passed(second) == ["bad_end", "what_is_installed"]


@pytest.mark.skipif(not has_dali(), reason="DALI is not installed")
def test_what_never_asks_for_a_gpu_is_not_run_on_the_simulated_one(tmp_path: Path) -> None:
    """Who asks in a fixture of the module asks for all that use it; who forks may ask unseen."""
    tests = """
import os
import pytest
from gpupipe.transform import array, choose, machine
@pytest.fixture(scope="module")
def wide(): return machine.gpu_count()
@pytest.fixture
def narrow(): return array.has_cupy()
def test_not(): pass
def test_gpus(): choose.gpu_count()
def test_driver(): machine.driver_cuda()
def test_wide(wide): pass
def test_wide_again(wide): pass
def test_narrow(narrow): pass
def test_nor_this(): pass
def test_host(monkeypatch):
    monkeypatch.setattr(machine, "installed", lambda: (0, None))
    machine.gpu_count()
def test_forks():
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
@pytest.mark.skip(reason="needs a GPU")
def test_skipped(): pass
"""
    note = str(tmp_path / "passed")

    assert len(passed(run(tmp_path, tests, "--passed", note))) == 9
    asking = ["driver", "forks", "gpus", "narrow", "wide", "wide_again"]
    again = run(tmp_path, tests.replace("@pytest.mark.skip", "#"), "-p", "tests.stand_in_gpu", "--passed-on-host", note)
    assert passed(again) == sorted([*asking, "skipped"])
    assert passed(run(tmp_path, tests, "--passed", note)) == []


def test_the_note_of_what_passed_may_be_there_before(tmp_path: Path) -> None:
    """As it is for the second of the two runs of `python -m tests`, that of the tests that run alone."""
    (tmp_path / "passed").touch()
    words = [sys.executable, "-m", "tests", "-n", "0", "--ignore-glob=*/test_*"]

    env = os.environ | {"GPUPIPE_PASSED": str(tmp_path / "passed")}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, timeout=100)

    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stderr.decode()
