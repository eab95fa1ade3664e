"""Files that fit a reader's head. Branches and arguments of a function are limited by ruff: C901 and PLR0913."""

from __future__ import annotations

from pathlib import Path

import gpupipe as gp

PACKAGE = Path(gp.__file__).parent
LINES = 700


def test_no_file_is_long() -> None:
    files = [*PACKAGE.rglob("*.py"), *(PACKAGE / "ops").rglob("*.py")]  # a symlink, which some Pythons follow
    lines = {path.relative_to(PACKAGE).as_posix(): len(path.read_text("utf-8").splitlines()) for path in files}

    assert len(lines) > 500
    assert {name: count for name, count in lines.items() if count > LINES} == {}
