"""Ranks that train together with torch.distributed: equally many steps on each, so none waits for ever."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.skipif(sys.platform == "win32", reason="the ranks meet in a file"),
]


def trained(folder: Path, even: str, size: int) -> list[tuple[int, str, str]]:
    """How two ranks ended, and what they said. One that waits for the other gives up after a minute."""
    started = []
    for rank in range(2):
        env = {**os.environ, "PYTHONPATH": str(ROOT), "RANK": str(rank), "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}
        command = [sys.executable, "-m", "tests.behaviour.ranks", f"file://{folder / 'meeting'}", even, str(size), "60"]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, env=env, cwd=ROOT, stdout=pipe, stderr=pipe, text=True))
    try:
        said = [process.communicate(timeout=100) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    return [(process.returncode, out, errors) for process, (out, errors) in zip(started, said, strict=True)]


@pytest.mark.parametrize(("even", "size", "rows"), [("drop", 127, 254), ("wrap", 128, 256)])
def test_even_shards_make_equally_many_steps_on_every_rank(tmp_path: Path, even: str, size: int, rows: int) -> None:
    """255 records: without `even` rank 0 has a batch of 128 more than rank 1, and waits for it until it gives up."""
    ended = trained(tmp_path, even, size)

    assert [(code, out) for code, out, _ in ended] == [(0, f"1 {rows}\n")] * 2, ended
