"""step_files: how many files of the package name a step: its node of the plan, or its flow.

    python -m tests.step_files [gpupipe]

A step that stands in few files can be understood, changed and added without knowing the others. Counted are the files
in whose code the name stands, as it is or followed by "Flow"; comments and docstrings do not count.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import gpupipe

STEPS = ("Prefetch", "Cache", "Map", "Shuffle", "FlatMap")

FIRST = {"Prefetch": 18, "Cache": 15, "Map": 18, "Shuffle": 18, "FlatMap": 16}
"""The counts before the steps stood in folders."""


def names_of(path: Path) -> set[str]:
    """Every name in the code of a file."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.ClassDef(name=name) | ast.alias(name=name):
                names.add(name)
            case _:
                pass
    return names


def counted(package: Path) -> dict[str, list[str]]:
    """The files that name each step."""
    found: dict[str, list[str]] = {step: [] for step in STEPS}
    for path in sorted(package.rglob("*.py")):
        names = names_of(path)
        for step in STEPS:
            if names & {step, f"{step}Flow"}:
                found[step].append(path.relative_to(package).as_posix())
    return found


if __name__ == "__main__":
    package = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(gpupipe.__file__).parent
    for step, files in counted(package).items():
        print(f"{step:10} {len(files):3}, first {FIRST[step]:3}: {' '.join(files)}")
