"""by_rank among processes that torch.distributed joins, each a program of its own on 127.0.0.1."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.rank_process import chain, digest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.skipif(sys.platform == "win32", reason="the ranks meet in a file"),
    pytest.mark.slow,
    pytest.mark.timeout(300),
]


def said(folder: Path, world: int, *args: str) -> list[dict[str, Any]]:
    """What each rank printed at its end. A rank that waits for another gives up after a minute."""
    meeting = folder / f"meeting-{len(list(folder.iterdir()))}"
    started = []
    for rank in range(world):
        env = {**os.environ, "PYTHONPATH": str(ROOT), "RANK": str(rank), "WORLD_SIZE": str(world)}
        env |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        url = f"file://{meeting}?rank={rank}&world_size={world}"
        command = [sys.executable, "-m", "tests.behaviour.rank_process", url]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen([*command, *args], env=env, cwd=ROOT, stdout=pipe, stderr=pipe, text=True))
    try:
        ended = [process.communicate(timeout=100) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert [process.returncode for process in started] == [0] * world, ended
    return [json.loads(out.splitlines()[-1]) for out, _ in ended]


def test_one_state_through_four_ranks_two_and_one_gives_the_batches_of_one_loop(tmp_path: Path) -> None:
    state, batches = tmp_path / "state.json", []
    for world, steps in ((4, 5), (2, 7), (1, -1)):
        every = said(tmp_path, world, "--steps", str(steps), "--state", str(state))
        assert all(one == every[0] for one in every)
        batches += every[0]["batches"]
        state.write_text(json.dumps(every[0]["state"]))
        assert state.stat().st_size <= 4096

    assert batches == [digest(batch) for batch in list(chain().iterator(epoch=0))[:24]]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("seed", "rank 1 has another seed: 9, where rank 0 has 1"),
        ("epoch", "rank 1 has another epoch: 3, where rank 0 has 0"),
        ("batch", "rank 1 has another batch: 128, where rank 0 has 64"),
    ],
)
def test_both_ranks_raise_before_their_first_batch(tmp_path: Path, wrong: str, text: str) -> None:
    every = said(tmp_path, 2, "--wrong", wrong)

    assert [text in one["error"] for one in every] == [True, True], every


def test_a_rank_that_looked_at_a_batch_trains_on_the_same_ones(tmp_path: Path) -> None:
    every = said(tmp_path, 2, "--wrong", "peek", "--steps", "4")

    whole = list(chain().iterator(epoch=0))[:4]
    assert [one["batches"] for one in every] == [[digest(batch) for batch in whole]] * 2
