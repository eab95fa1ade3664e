"""Planted mistakes: the lines that `python -m tests.breaks` changes are where it looks for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLANTED: list[dict[str, Any]] = json.loads((ROOT / "tests/breaks/breaks.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("one", PLANTED, ids=lambda one: one["name"])
def test_the_lines_of_a_planted_mistake_are_there_once(one: dict[str, Any]) -> None:
    text = (ROOT / one["file"]).read_text(encoding="utf-8")

    assert text.count("\n".join(one["old"])) == 1
    assert one["old"] != one["new"]
