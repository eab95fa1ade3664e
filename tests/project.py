"""project: what pyproject.toml says of the distribution."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["PROJECT", "requirements"]

ROOT = Path(__file__).resolve().parent.parent

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
"""The table `project`."""


def requirements(*extras: str) -> list[Requirement]:
    """What the distribution needs with extras, and with those that they include."""
    found = [Requirement(line) for line in PROJECT["dependencies"]]
    waiting = list(extras)
    for extra in waiting:  # it grows
        for line in PROJECT["optional-dependencies"][extra]:
            needed = Requirement(line)
            if needed.name == PROJECT["name"]:
                waiting += needed.extras - set(waiting)
            else:
                found.append(needed)
    return found
