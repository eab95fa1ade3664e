"""A process that was forked from one that uses a GPU is told that it cannot: CUDA does not survive a fork."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nvidia.dali", reason="DALI is not installed")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

PROGRAM = """
import os, sys, warnings
warnings.simplefilter("ignore")  # Python itself warns about fork with threads
import numpy as np
import gpupipe as gp
from gpupipe import ops
from gpupipe.transform import machine
if not machine.gpu_count():
    from tests import stand_in_gpu
    stand_in_gpu.install()
ds = gp.Dataset.from_tensor_slices(np.zeros((8, 4, 4, 3), np.uint8)).map(ops.flip_left_right).batch(2)
gpu = ds.with_options(gp.Options(device="gpu"))

def tried(items):
    try:
        print("child:", len(list(items)), "batches", flush=True)
    except (gp.ClosedError, gp.DeviceError) as error:
        print("child:", type(error).__name__, error, flush=True)

def forked(*chains):
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)
    for chain in chains:
        tried(chain)
    os._exit(0)
"""


def _run(body: str) -> list[str]:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", PROGRAM + body], capture_output=True, text=True, timeout=60, cwd=root)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_a_child_of_a_process_that_used_a_gpu_is_told_to_be_spawned() -> None:
    of_parents, new, on_cpu, parent = _run(
        """
items = iter(gpu)
next(items)
forked(items, gpu, ds.with_options(gp.Options(device="cpu")))
print("parent:", len(list(items)), "batches")
"""
    )

    assert of_parents == "child: ClosedError this iterator was created before a fork; make a new one in this process"
    assert new.startswith("child: DeviceError DALI on GPU 0 cannot run in a process that was forked from one that used")
    assert "'spawn'" in new and "Options(device='cpu')" in new
    assert on_cpu == "child: 4 batches"
    assert parent == "parent: 3 batches"


def test_a_child_that_was_forked_before_uses_it() -> None:
    assert _run("forked(gpu)\nprint(len(list(gpu)))") == ["child: 4 batches", "4"]
