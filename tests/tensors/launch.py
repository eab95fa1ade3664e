"""Runs the programs of this folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from tests.chains.data import ROOT
from tests.tensors.programs import chain


def run(program: str, *arguments: str, ranks: int = 1, **environment: str) -> list[dict[str, Any]]:
    """Run a program of tests/tensors on the CPU and return what each rank printed, as JSON, by rank."""
    variables = dict(os.environ, OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", PYTHONPATH=str(ROOT), **environment)
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    command = [sys.executable, *launcher, f"{ROOT}/tests/tensors/{program}.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=variables, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(line[line.index("{") :]) for line in done.stdout.splitlines() if "{" in line]
    return sorted(found, key=lambda one: int(one["rank"]))


def expected(number: int) -> list[list[int]]:
    """The batches of an epoch of the programs' chain."""
    return [batch.tolist() for _, batch in chain().iterator(epoch=number)]
