"""The contract of a running step (`flow/step.py`), without any chain."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gpupipe as gp

FLOW = sorted((Path(gp.__file__).parent / "flow").rglob("*.py"))


@pytest.mark.parametrize("path", FLOW, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_a_step_can_do_is_never_looked_up_by_name(path: Path) -> None:
    assert re.findall(r"getattr\(.*(?:snapshot|close|ready|ahead)", path.read_text(encoding="utf-8")) == []
