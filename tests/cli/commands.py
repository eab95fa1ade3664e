"""The command in a process of its own, as a person starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import gpupipe

__all__ = ["ROOT", "ended", "started"]

ROOT = Path(gpupipe.__file__).parents[1]


def started(*arguments: str, cwd: Path, first: Path | None = None, **environment: str) -> subprocess.Popen[str]:
    """Start `gpupipe ...` in a folder, with another folder first on Python's path."""
    path = os.pathsep.join(map(str, filter(None, (first, ROOT))))
    command = [sys.executable, "-m", "gpupipe.cli", *arguments]
    return subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": path, **environment}, cwd=cwd, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for it; return its status, stdout and stderr."""
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, out, err
