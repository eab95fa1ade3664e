"""by_rank over images with random crops, under torchrun and under JAX: all batches are those of one loop."""

from __future__ import annotations

import importlib.util
import json
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.behaviour.rank_images import STEPS, chain, write
from tests.behaviour.rank_process import digest, launched
from tests.on_ray.sessions import apart

EPOCH = 2

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="ranks on one machine need POSIX"),
    pytest.mark.slow,
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("images")
    write(made)
    return made


def agree(outputs: Sequence[str], folder: Path) -> None:
    """Check that two ranks say that they had the images and labels of all batches of a loop without ranks."""
    whole = list(chain(folder).iterator(epoch=EPOCH))
    lines = [line for out in outputs for line in out.splitlines() if line.startswith("{")]
    every = sorted(map(json.loads, lines), key=lambda one: int(one["rank"]))
    assert len(whole) == STEPS
    assert [one["rank"] for one in every] == [0, 1]
    for one in every:
        assert one["images"] == [digest(images) for images, _ in whole]
        assert one["labels"] == [digest(np.asarray(labels, np.int32)) for _, labels in whole]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_ranks_under_torchrun_make_the_batches_of_one_loop(folder: Path) -> None:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--local-addr=127.0.0.1"]
    program = ["-m", "tests.behaviour.rank_images", "torch", str(folder), str(EPOCH)]

    # With loopback alone, where that is allowed: torchrun listens everywhere.
    agree(launched(([*apart(), sys.executable, *launcher, *program], {})), folder)


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
def test_ranks_of_jax_make_the_batches_of_one_loop(folder: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    program = [sys.executable, "-m", "tests.behaviour.rank_images", "jax", str(folder), str(EPOCH)]

    agree(launched(*(([*program, str(rank), address], {"JAX_PLATFORMS": "cpu"}) for rank in range(2))), folder)
