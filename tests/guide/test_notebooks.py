"""The committed notebooks: run from top to bottom, small, and with nothing in them of the machine that ran them.

`make notebooks` executes them; here their files are read.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
BOOKS = sorted(FOLDER.glob("*.ipynb"))
MOST_BYTES = 400_000

_UNITS = "ns|us|µs|ms|s|sec|seconds|minutes|[kMG]i?B|images/s|images per second|fps|times"
FIGURE = re.compile(rf"\d\s*(%|×|x\b(?!\s*\d)|-?(CPU-)?({_UNITS})\b)")
"""A measured value: digits and a unit. Prose that needs one leaves it to a cell."""

MACHINE = re.compile(
    r"(?<![\w.])/(home|root|tmp|work|usr|opt|var|private|Users)/|\b[A-Z]:\\\\|\b20\d\d-\d\d-\d\d\b|\b\d\d:\d\d:\d\d\b"
)
"""An absolute path, a date, a time of day."""

books = pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def cells(path: Path, kind: str) -> list[Any]:
    return [cell for cell in read(path)["cells"] if cell["cell_type"] == kind]


def text_of(output: Any) -> str:
    """What a person reads of an output; pictures apart."""
    found = [output.get("text", ""), *(v for k, v in output.get("data", {}).items() if not k.startswith("image/"))]
    return "\n".join("".join(text) for text in found)


def test_the_readme_lists_every_notebook() -> None:
    listed = re.findall(r"\]\((\d\d-[\w-]+\.ipynb)\)", (FOLDER / "README.md").read_text(encoding="utf-8"))
    assert listed == [path.name for path in BOOKS]


@books
def test_a_notebook_was_run_from_top_to_bottom_without_an_error(path: Path) -> None:
    code = cells(path, "code")
    outputs = [output for cell in code for output in cell["outputs"]]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert not {"error", "stderr"} & {output.get(key) for output in outputs for key in ("output_type", "name")}
    assert len(outputs) >= len(code) / 2


@books
def test_a_notebook_is_small_and_starts_with_prose(path: Path) -> None:
    first, second = read(path)["cells"][:2]
    assert path.stat().st_size <= MOST_BYTES
    assert first["cell_type"] == "markdown" and first["source"][0].startswith("# ")
    assert len("".join(cell_text for cell in (first, second) for cell_text in cell["source"])) > 200


@books
def test_a_notebook_says_nothing_of_the_machine_that_ran_it(path: Path) -> None:
    book = read(path)
    assert set(book["metadata"]) == {"kernelspec", "language_info"}
    assert book["metadata"]["kernelspec"]["name"] == "python3"
    assert "version" not in book["metadata"]["language_info"]
    assert [cell["metadata"] for cell in book["cells"]] == [{}] * len(book["cells"])
    said = ["".join(cell["source"]) for cell in book["cells"]]
    said += [text_of(output) for cell in cells(path, "code") for output in cell["outputs"]]
    assert [found.group() for text in said if (found := MACHINE.search(text))] == []


@books
def test_prose_leaves_measured_values_to_cells(path: Path) -> None:
    prose = ["".join(cell["source"]) for cell in cells(path, "markdown")]
    assert [found.group() for text in prose if (found := FIGURE.search(re.sub(r"`[^`]*`", "", text)))] == []


@pytest.mark.parametrize(
    ("pattern", "found", "left"),
    [
        (FIGURE, "takes 12 ms|3.5x faster|saves 40 %|240 images/s|9 CPU-ms|5 GB|2 times", "Python 3.10|224 x 224"),
        (MACHINE, "in /home/me/data|File '/tmp/x'|2024-05-06|at 12:30:45", "and/or|data/train"),
    ],
    ids=["measured value", "machine"],
)
def test_what_a_notebook_may_not_have_is_found(pattern: re.Pattern[str], found: str, left: str) -> None:
    assert [text for text in found.split("|") if not pattern.search(text)] == []
    assert [text for text in left.split("|") if pattern.search(text)] == []
