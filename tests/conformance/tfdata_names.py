"""tfdata_names: every public name of tf.data, and what stands here for it. Writes gpupipe/dataset/README.md.

    python -m tests.conformance.tfdata_names > gpupipe/dataset/README.md

The tables are in tfdata_names.md: for each name what to write here, where it is not the same name; what is better or
deliberately different; why it is left out; and a test that shows it, where TensorFlow has nothing to compare with.
"same" is not claimed there but counted: the number is that of the comparisons with TensorFlow in tests/differential
whose code uses the name. A name that has none must say how it is better, or why it is left out.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import NamedTuple

__all__ = ["COMPLAINTS", "TABLES", "Name", "comparisons", "document"]

ROOT = Path(__file__).resolve().parents[2]
DIFFERENTIAL = ROOT / "tests" / "differential"
PAGE = Path(__file__).with_name("tfdata_names.md").read_text(encoding="utf-8").splitlines()


class Name(NamedTuple):
    """One row: a name, and the columns."""

    name: str
    here: str
    better: str
    left_out: str
    tested: str


def _rows(title: str) -> list[list[str]]:
    """The cells of the table under a title."""
    start = PAGE.index(f"## {title}") + 4
    end = next((n for n in range(start, len(PAGE)) if not PAGE[n]), len(PAGE))
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE[start:end]]


TABLES = {
    title: [Name(*row) for row in _rows(title)] for title in ("Methods of Dataset", "tf.data", "tf.data.experimental")
}
COMPLAINTS = _rows("What users of tf.data stumbled over")
"""What, where (in tensorflow/tensorflow unless a repository is named), what gpupipe does instead, and what shows it."""


def comparisons() -> Counter[str]:
    """How many comparisons with TensorFlow use each name: entries of the tables of chains, and other tests."""
    found: Counter[str] = Counter()
    for path in sorted(DIFFERENTIAL.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Dict):
                for value in node.values:
                    if isinstance(value, ast.Lambda | ast.Tuple | ast.Call):
                        found.update(_names(value))
            elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.update(_names(node))
    return found


def _names(tree: ast.AST) -> set[str]:
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return names | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def document() -> str:
    """The page, with the number of comparisons of each name."""
    found = comparisons()
    lines = list(PAGE)
    for title, entries in TABLES.items():
        start = PAGE.index(f"## {title}") + 2
        rows = ["| tf.data | here | compared | |", "|---|---|--:|---|", *(_row(entry, found) for entry in entries)]
        lines[start : start + len(rows)] = rows
    return "\n".join([*lines, ""])


def _row(entry: Name, found: Counter[str]) -> str:
    name, here, better, left_out, tested = entry
    if left_out:
        return f"| `{name}` | {_code(here) or '-'} | | left out: {left_out} |"
    count = found[_here(entry)]
    what = f"better: {better}" if better else "same"
    shown = f"; tested in `{tested}`" if tested and not count else ""
    return f"| `{name}` | {_code(here) or 'same name'} | {count or ''} | {what}{shown} |"


def _here(entry: Name) -> str:
    """The name that a comparison would use."""
    return entry.here.partition("(")[0].rpartition(".")[2] or entry.name


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    print(document())
