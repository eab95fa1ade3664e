"""once: what a program found, for all tests that look at it, in whichever process of pytest-xdist they run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

__all__ = ["once"]


def once(factory: pytest.TempPathFactory, name: str, find: Callable[[Path], Any]) -> Any:
    """What `find` gives, as JSON; of all processes of pytest-xdist, the first that asks calls it.

    Args:
        factory: of folders.
        name: of a folder for it, which `find` is given.
        find: called in one test, whose failure is that of all.
    """
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name  # where all processes look
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        if os.name == "posix":
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        kept = folder / "found.json"
        if not kept.exists():
            try:
                found = {"found": find(folder)}
            except (AssertionError, pytest.fail.Exception) as error:
                found = {"failed": str(error)}
            kept.write_text(json.dumps(found))
        result: dict[str, Any] = json.loads(kept.read_text())
    if "failed" in result:
        pytest.fail(result["failed"])
    return result["found"]
