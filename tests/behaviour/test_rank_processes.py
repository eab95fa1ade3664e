"""Ranks among processes that torch.distributed or JAX joins, each a program of its own on 127.0.0.1."""

from __future__ import annotations

import importlib.util
import json
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.rank_process import IMAGE_BATCHES, chain, digests, images, launched, write_images
from tests.on_ray.sessions import apart

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="the ranks meet in a file"),
    pytest.mark.slow,
    pytest.mark.timeout(300),
]
needs_torch, needs_jax = (
    pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed")
    for name in ("torch", "jax")
)
PROGRAM = ["-m", "tests.behaviour.rank_process"]


def parsed(outputs: Iterable[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for out in outputs for line in out.splitlines() if line.startswith("{")]


def said(folder: Path, world: int, *tasks: str) -> list[dict[str, Any]]:
    """What each rank printed at its end."""
    meeting = folder / f"meeting-{len(list(folder.iterdir()))}"
    ranks = []
    for rank in range(world):
        url = f"file://{meeting}?rank={rank}&world_size={world}"
        command = [sys.executable, *PROGRAM, "torch", url, *tasks]
        ranks.append((command, {"RANK": str(rank), "WORLD_SIZE": str(world)}))
    return parsed(launched(*ranks))


@needs_torch
def test_one_state_through_two_ranks_and_one_gives_the_batches_of_one_loop(tmp_path: Path) -> None:
    state, batches = tmp_path / "state.json", []
    for world, steps in ((2, 11), (1, -1)):
        every = [one["resume"] for one in said(tmp_path, world, f"resume,{steps},{state}")]
        assert all(one == every[0] for one in every)
        batches += every[0]["batches"]
        state.write_text(json.dumps(every[0]["state"]))
        assert state.stat().st_size <= 4096

    assert batches == [digests(batch) for batch in list(chain().iterator(epoch=0))[:24]]


@needs_torch
def test_two_ranks_raise_where_they_differ_and_else_make_equally_many_steps(tmp_path: Path) -> None:
    """Of 255 records rank 0 has, without `even`, a batch of 128 more than rank 1, and waits until it gives up."""
    every = said(tmp_path, 2, "seed", "epoch", "batch", "peek,4", "drop,127", "wrap,128")

    for wrong, text in (
        ("seed", "rank 1 has another seed: 9, where rank 0 has 1"),
        ("epoch", "rank 1 has another epoch: 3, where rank 0 has 0"),
        ("batch", "rank 1 has another batch: 128, where rank 0 has 64"),
    ):
        assert [text in one[wrong] for one in every] == [True, True], every
    whole = [digests(batch) for batch in list(chain().iterator(epoch=0))[:4]]
    assert [one["peek"] for one in every] == [whole] * 2  # a rank that looked at a batch trains on the same ones
    assert [(one["drop"], one["wrap"]) for one in every] == [([1, 254], [1, 256])] * 2


@pytest.mark.parametrize("engine", [pytest.param("torch", marks=needs_torch), pytest.param("jax", marks=needs_jax)])
def test_ranks_that_crop_images_at_random_make_the_batches_of_one_loop(engine: str, tmp_path: Path) -> None:
    """Under torchrun, and under JAX."""
    write_images(tmp_path)
    task = f"images,{tmp_path},2"
    if engine == "torch":
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--local-addr=127.0.0.1"]
        # With loopback alone, where that is allowed: torchrun listens everywhere.
        outputs = launched(([*apart(), sys.executable, *launcher, *PROGRAM, "torch", "env://", task], {}))
    else:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        commands = [[sys.executable, *PROGRAM, "jax", f"{rank}@{address}", task] for rank in range(2)]
        outputs = launched(*((command, {"JAX_PLATFORMS": "cpu"}) for command in commands))

    whole = [digests(batch) for batch in images(tmp_path).iterator(epoch=2)]
    assert len(whole) == IMAGE_BATCHES
    assert [one["images"] for one in parsed(outputs)] == [whole] * 2
