"""The command in a process of its own, as a person starts it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import gpupipe

__all__ = ["ROOT", "Cli", "ended", "marked", "settled", "signalled", "started"]

ROOT = Path(gpupipe.__file__).parents[1]
Cli: TypeAlias = Callable[..., tuple[int, str, str]]
"""Runs the command in this process with words of any type: its status, stdout and stderr."""


def started(*arguments: str, cwd: Path, first: Path | None = None, **environment: str) -> subprocess.Popen[str]:
    """Start `gpupipe ...` in a folder, with another folder first on Python's path."""
    path = os.pathsep.join(map(str, filter(None, (first, ROOT))))
    command = [sys.executable, "-m", "gpupipe.cli", *arguments]
    return subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": path, **environment}, cwd=cwd, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def signalled(
    process: subprocess.Popen[str], number: signal.Signals, ready: Callable[[], object]
) -> tuple[int, str, str]:
    """Send it a signal once something is so, after 30 seconds at the latest; return what `ended` returns."""
    deadline = time.monotonic() + 30
    while not ready() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(number)
    return ended(process)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for it; return its status, stdout and stderr."""
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, out, err


def marked(mark: str) -> set[int]:
    """The processes that run with a mark in their environment."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            if mark.encode() in (folder / "environ").read_bytes():
                found.add(int(folder.name))
    return found


def settled(mark: str, count: int) -> bool:
    """Whether so many marked processes run, within some seconds."""
    deadline = time.monotonic() + 60
    while len(marked(mark)) != count and time.monotonic() < deadline:
        time.sleep(0.02)
    return len(marked(mark)) == count
