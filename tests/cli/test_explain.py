"""`gpupipe explain`: the plan of a user's chain, from its file."""

from __future__ import annotations

import json
import sys
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
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", sys.path.copy())
    (tmp_path / "train.py").write_text(FILE)
    return tmp_path


def test_the_plan_and_its_findings_are_printed_without_iterating(folder: Path) -> None:
    status, out, err = ended(started("explain", "train.py:ds", cwd=folder))

    assert (status, err) == (0, "noise\n")
    assert out.startswith("plan as written (last step first)\n  batch(2)")
    assert "as it will run" in out
    assert f"worth a look\n  {folder / 'train.py'}:9: shuffle comes after the repeat" in out


def test_json_has_the_text_and_the_findings(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{folder}/train.py:ds", "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert found["explanation"].startswith("plan as written")
    (finding,) = found["findings"]
    assert finding["rule"] == "repeat_before_shuffle"
    assert finding["line"] == f"{folder / 'train.py'}:9"


def test_a_wrong_name_is_one_line_and_status_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{folder}/train.py:dds"]) == 2

    said = capsys.readouterr()
    assert said.out == ""
    assert "train.py has no 'dds'; did you mean ds? its datasets are ds" in said.err


def test_an_error_in_the_file_is_status_1_and_the_users_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "train.py").write_text("import gpupipe as gp\nds = gp.Dataset.range(3).batch(0)\n")

    assert main(["explain", f"{folder}/train.py:ds"]) == 1

    said = capsys.readouterr()
    assert said.err.splitlines()[:3] == [
        f"gpupipe explain: {folder / 'train.py'} failed",
        "Traceback (most recent call last):",
        f'  File "{folder / "train.py"}", line 2, in <module>',
    ]
    assert (said.out, said.err.count('  File "')) == ("", 1)
