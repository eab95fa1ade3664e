"""A dataset named on the command line: found as the user's file makes it, or refused in words that help."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import gpupipe as gp
from gpupipe.errors import GpupipeError, PlanError
from gpupipe.tools.users_file import find_dataset, names_a_dataset

FILE = """
import sys
import gpupipe as gp
import beside_it
print("noise of the file")
ds = gp.Dataset.range(beside_it.COUNT).batch(2)
other = ds.take(1)
number = 3
arguments = sys.argv
class Inputs:
    train = ds.skip(1)
def make(count=2):
    return ds.take(count)
def needs(path):
    return ds
def fails():
    return ds.batch(0)
def gives_a_number():
    return 3
if __name__ == "__main__":
    raise SystemExit("the main block ran")
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A user's file, in a folder with a module that it imports."""
    (tmp_path / "my_input.py").write_text(FILE)
    (tmp_path / "beside_it.py").write_text("COUNT = 10\n")
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for name in ("my_input", "beside_it"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return str(tmp_path / "my_input.py")


@pytest.mark.parametrize(("name", "count"), [("ds", 5), ("other", 1), ("make", 2), ("Inputs.train", 4)])
def test_a_dataset_is_found_and_a_function_is_called(
    file: str, capsys: pytest.CaptureFixture[str], name: str, count: int
) -> None:
    arguments = sys.argv

    dataset = find_dataset(f"{file}:{name}")

    assert isinstance(dataset, gp.Dataset) and dataset.cardinality() == count
    assert capsys.readouterr() == ("", "noise of the file\n")
    assert sys.argv is arguments
    assert sys.path[0] == str(Path(file).parent)
    assert sys.modules["my_input"].arguments == [file]  # as if there were none


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (":othr", r"has no 'othr'; did you mean other\? its datasets are ds, other; functions that may return one: "
                  r"make\(\), fails\(\), gives_a_number\(\)"),
        (":Inputs.tran", "has no 'Inputs.tran'"),
        ("", r"needs a name behind it, .*my_input.py:NAME; its datasets are ds, other"),
        (":needs", "without required arguments, got one that is missing a required argument: 'path'"),
        (":number", "needs to be a Dataset, got int"),
        (":gives_a_number", "needs to be a Dataset, got int"),
    ],
    ids=["typo", "typo behind a dot", "no name", "arguments", "number", "returns a number"],
)  # fmt: skip
def test_a_wrong_name_is_refused_with_the_right_ones(file: str, name: str, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        find_dataset(file + name)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no_such.py:ds", "got 'no_such.py': it does not exist"),
        ("no_such_module:ds", "got 'no_such_module': No module named 'no_such_module'; a file ends in .py"),
        ("my_input.nothing:ds", "No module named 'my_input.nothing'"),
        (":ds", "needs FILE.py:NAME or MODULE:NAME, got ':ds'"),
        ("my-input:ds", "got 'my-input' before the colon"),
    ],
)
def test_a_wrong_place_is_refused(file: str, monkeypatch: pytest.MonkeyPatch, text: str, words: str) -> None:
    monkeypatch.chdir(Path(file).parent)

    assert find_dataset("my_input:ds").cardinality() == 5  # a module of the working directory
    with pytest.raises(PlanError, match=words):
        find_dataset(text)


def test_an_error_in_the_users_code_shows_the_users_lines_alone(file: str) -> None:
    with pytest.raises(GpupipeError) as caught:
        find_dataset(f"{file}:fails")

    first, *lines = str(caught.value).splitlines()
    (place,) = (line for line in lines if line.startswith("  File"))
    number = FILE.splitlines().index("    return ds.batch(0)") + 1
    assert (first, place) == (f"{file}:fails() failed", f'  File "{file}", line {number}, in fails')
    assert lines[-1].startswith("gpupipe.errors.PlanError: batch needs batch_size >= 1, got 0")
    assert not isinstance(caught.value, PlanError)


def test_an_import_that_fails_inside_the_file_is_the_users_error(tmp_path: Path, file: str) -> None:
    (tmp_path / "beside_it.py").write_text("import no_such_library\n")

    with pytest.raises(GpupipeError, match="No module named 'no_such_library'") as caught:
        find_dataset(f"{file}:ds")

    assert str(caught.value).count('  File "') == 2
    assert "importlib" not in str(caught.value)


def test_a_file_that_cannot_be_run_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "wrong-name.py").write_text("def f(:\n")
    (tmp_path / "program.py").write_text("import sys\nsys.exit(3)\n")

    with pytest.raises(GpupipeError, match=r"(?s)line 1\n    def f\(:.*SyntaxError"):
        find_dataset(f"{tmp_path / 'wrong-name.py'}:ds")
    with pytest.raises(GpupipeError, match=r"ended itself with status 3 .* below `if __name__"):
        find_dataset(f"{tmp_path / 'program.py'}:ds")


def test_a_dataset_is_told_from_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data:ds").mkdir()

    assert all(map(names_a_dataset, ["a.py:ds", "b/a.py:x.y", "pkg.module:ds", "a.py"]))
    assert not any(map(names_a_dataset, ["data", "train-*.tfrecord", "data:ds", "a:b.tfrecord/x", ":ds"]))
