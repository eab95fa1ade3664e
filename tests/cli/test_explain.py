"""`gpupipe explain`: the plan of a user's chain, from its file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.commands import Cli, ended, started

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
    assert f"worth a look\n  {folder / 'train.py'}:7: shuffle comes after the repeat" in out


def test_json_has_the_text_and_the_findings(folder: Path, cli: Cli) -> None:
    status, out, _ = cli("explain", f"{folder}/train.py:ds", "--json")

    found = json.loads(out)
    (finding,) = found["findings"]
    assert status == 0 and found["explanation"].startswith("plan as written")
    assert (finding["rule"], finding["line"]) == ("repeat_before_shuffle", f"{folder / 'train.py'}:7")


def test_an_error_in_the_file_is_status_1_and_the_users_lines(folder: Path, cli: Cli) -> None:
    (folder / "train.py").write_text("import gpupipe as gp\nds = gp.Dataset.range(3).batch(0)\n")

    status, out, err = cli("explain", f"{folder}/train.py:ds")

    first, second, third, *_ = err.splitlines()
    assert first == f"gpupipe explain: {folder / 'train.py'} failed" and second.startswith("Traceback")
    assert third == f'  File "{folder / "train.py"}", line 2, in <module>'
    assert (status, out, err.count('  File "')) == (1, "", 1)
