"""`gpupipe explain`: the plan of a user's chain, from its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpupipe.cli import main
from tests.cli.commands import ended, started

FILE = """
import gpupipe as gp

def never():
    raise AssertionError("the dataset was iterated over")
    yield 1

print("noise")
ds = gp.Dataset.from_generator(never, output_signature=gp.TensorSpec((), "int64")).repeat(2).shuffle(5).batch(2)

if __name__ == "__main__":
    raise AssertionError("the main block ran")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(FILE)
    return tmp_path


def test_the_plan_and_its_findings_are_printed_without_iterating(folder: Path) -> None:
    status, out, err = ended(started("explain", "train.py:ds", cwd=folder))

    assert (status, err) == (0, "noise\n")
    assert out.startswith("plan as written (last step first)\n  batch(2)")
    assert "as it will run" in out
    assert f"worth a look\n  {folder / 'train.py'}:9: shuffle comes after the repeat" in out


def test_json_has_the_text_and_the_findings(folder: Path) -> None:
    status, out, _ = ended(started("explain", "train.py:ds", "--json", cwd=folder))

    assert status == 0
    found = json.loads(out)
    assert found["explanation"].startswith("plan as written")
    (finding,) = found["findings"]
    assert finding["rule"] == "repeat_before_shuffle"
    assert finding["line"] == f"{folder / 'train.py'}:9"


def test_a_wrong_name_is_one_line_and_status_2(folder: Path) -> None:
    status, out, err = ended(started("explain", "train.py:dds", cwd=folder))

    assert (status, out) == (2, "")
    assert "gpupipe explain: train.py has no 'dds'; did you mean ds? its datasets are ds" in err
    assert "Traceback" not in err


def test_an_error_in_the_file_is_status_1_and_the_users_lines(folder: Path) -> None:
    (folder / "train.py").write_text("import gpupipe as gp\nds = gp.Dataset.range(3).batch(0)\n")

    status, out, err = ended(started("explain", "train.py:ds", cwd=folder))

    assert (status, out) == (1, "")
    assert err.splitlines()[:3] == [
        f"gpupipe explain: {folder / 'train.py'} failed",
        "Traceback (most recent call last):",
        f'  File "{folder / "train.py"}", line 2, in <module>',
    ]
    assert err.count('  File "') == 1


def test_a_missing_file_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "no_such_file.py:ds"]) == 2
    assert "it does not exist" in capsys.readouterr().err
