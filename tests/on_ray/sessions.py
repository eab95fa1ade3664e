"""Programs that use Ray, each in a network of its own with loopback only where the system allows that.

Ray's servers listen on all interfaces. A program gets a home and a folder for Ray's files of its own, must end in time,
and leaves no process: all of its processes carry a mark in their environment.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import marked, settled
from tests.once import once

ROOT = Path(__file__).resolve().parents[2]
MARK = "GPUPIPE_TEST_OF_RAY"
UP = 'ip link set lo up && exec "$@"'

needs_ray = [
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found in /proc"),
    pytest.mark.slow,
    pytest.mark.timeout(330),
]


def apart() -> list[str]:
    """The command before a command, which runs it with loopback only; nothing where that is not allowed."""
    prefix = ["unshare", "-rn", "bash", "-c", UP, "lo"]
    try:
        allowed = subprocess.run([*prefix, "true"], capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        allowed = False
    return prefix if allowed else []


def shared(factory: pytest.TempPathFactory, module: str, seconds: float = 240) -> dict[str, Any]:
    """What a program of this folder prints; of all processes of pytest-xdist, the first that asks runs it.

    Args:
        factory: of folders.
        module: its name.
        seconds: within which it must end.
    """
    found: dict[str, Any] = once(factory, module, lambda folder: said(module, folder, seconds=seconds))
    return found


def said(module: str, folder: Path, seconds: float = 240) -> dict[str, Any]:
    """Run a program of this folder; return what it printed, a JSON object in its last line.

    Args:
        module: its name.
        folder: for its files.
        seconds: within which it must end.
    """
    mark, ray = uuid.uuid4().hex, tempfile.mkdtemp(prefix="gp-ray-", dir="/tmp")  # short: sockets have paths
    env = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "RANK", "WORLD_"))}
    env |= {"PYTHONPATH": str(ROOT), "HOME": ray, "RAY_USAGE_STATS_ENABLED": "0", "RAY_TEST_FOLDER": ray, MARK: mark}
    env["RAY_worker_niceness"] = "0"  # 15 as a rule: beside other tests the workers would hardly run
    command = [*apart(), sys.executable, "-m", f"tests.on_ray.{module}", str(folder)]
    # Files, not pipes: Ray's servers inherit them, and one that is left would keep a pipe open.
    texts = [folder / f"{module}.{name}" for name in ("out", "err")]
    with open(texts[0], "w") as out_file, open(texts[1], "w") as err_file:
        process = subprocess.Popen(command, env=env, cwd=ROOT, stdout=out_file, stderr=err_file)
    try:
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"no end within {seconds} s: {texts[1].read_text(errors='replace')[-5000:]}")
        out, err = (path.read_text(errors="replace") for path in texts)
        assert process.returncode == 0, f"{out[-3000:]}\n{err[-5000:]}"
        assert settled(mark, 0), f"processes are left: {marked(mark)}"
    finally:
        process.kill()
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(ray, ignore_errors=True)
    line = next(line for line in reversed(out.splitlines()) if line.startswith("{"))
    result: dict[str, Any] = json.loads(line)
    return result
