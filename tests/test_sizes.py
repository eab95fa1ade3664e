"""Files, folders and functions that fit a reader's head: the longest of each is known."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpupipe as gp

PACKAGE = Path(gp.__file__).parent
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "ops" not in path.relative_to(PACKAGE).parts)
OPS = sorted((PACKAGE / "ops").rglob("*.py"))

LINES = 450
"""Of a file."""

FILES_OF_A_FOLDER = 20
"""The catalogue of ops apart."""

LINES_OF_A_FUNCTION = 45
"""Its docstring not counted."""


def functions(source: str) -> Iterator[tuple[str, int]]:
    """The functions of a file with their lines, from `def` to the last one, without the docstring."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0]
            text = ast.get_docstring(node, clean=False) is not None
            docstring = (first.end_lineno or first.lineno) - first.lineno + 1 if text else 0
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1 - docstring


@pytest.mark.parametrize("path", [*FILES, *OPS], ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_file_and_its_functions_are_short(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= LINES
    assert [(name, lines) for name, lines in functions(source) if lines > LINES_OF_A_FUNCTION] == []


def test_a_folder_has_few_files() -> None:
    folders = {path.parent for path in FILES}
    assert {str(folder) for folder in folders if len(list(folder.glob("*.py"))) > FILES_OF_A_FOLDER} == set()


def test_lines_of_a_function_are_counted_without_its_docstring() -> None:
    source = 'def one():\n    """Say one.\n\n    Twice.\n    """\n    return (\n        1\n    )\n'
    assert list(functions(source)) == [("one", 4)]
