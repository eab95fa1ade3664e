"""Runs the programs of this folder."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.chains.data import ROOT
from tests.once import once
from tests.tensors.programs import chain

ON_JAX = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
"""Variables with which JAX has two devices in a process."""

ALONE: Mapping[str, str] = {}
"""No variables of its own."""

TOLD = '{"rank"'
"""What a line begins with that `programs.tell` printed; libraries print lines of their own."""


def run(
    program: str, *arguments: str, ranks: int = 1, torchrun: bool = False, **environment: str
) -> list[dict[str, Any]]:
    """Run a program of tests/tensors on the CPU and return what each rank printed, as JSON, by rank.

    Args:
        program: its name.
        arguments: of its command.
        ranks: how many processes run it, with the variables that torchrun gives them.
        torchrun: whether torchrun starts them, which imports torch once more.
        environment: further variables.
    """
    variables = dict(os.environ, OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", PYTHONPATH=str(ROOT), **environment)
    command = [sys.executable, f"{ROOT}/tests/tensors/{program}.py", *arguments]
    if torchrun:
        command[1:1] = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        own: list[dict[str, str]] = [{}]
    else:
        own = variables_of(ranks) if ranks > 1 else [{}]
    with ExitStack() as stack:
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT}
        started = []
        for one in own:
            process = stack.enter_context(subprocess.Popen(command, env={**variables, **one}, **pipes))
            stack.callback(process.kill)  # one rank may wait for another that failed
            started.append(process)
        printed = [process.communicate(timeout=200) for process in started]
    for process, (_, wrong) in zip(started, printed, strict=True):
        assert process.returncode == 0, wrong[-3000:]
    lines = [line for out, _ in printed for line in out.splitlines() if TOLD in line]
    return sorted((json.loads(line[line.index(TOLD) :]) for line in lines), key=lambda one: int(one["rank"]))


def shared(
    factory: pytest.TempPathFactory, program: str, *arguments: str, ranks: int = 1, variables: Mapping[str, str] = ALONE
) -> list[dict[str, Any]]:
    """What `run` gives, for all tests of a session: the program runs once. Its last argument is a folder."""

    def find(folder: Path) -> Any:
        return run(program, *arguments, str(folder), ranks=ranks, torchrun=False, **variables)

    found: list[dict[str, Any]] = once(factory, "-".join((program, *arguments, str(ranks), *variables.values())), find)
    return found


def variables_of(ranks: int) -> list[dict[str, str]]:
    """What torchrun tells the processes of one machine, by rank."""
    (port,) = free_ports(1)
    common = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "test"}
    common |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "GROUP_RANK": "0"}
    return [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]


def free_ports(number: int) -> list[str]:
    """Ports that nobody listens on."""
    with ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("localhost", 0))) for _ in range(number)]
        return [str(server.getsockname()[1]) for server in servers]


def expected(number: int) -> list[list[int]]:
    """The batches of an epoch of the programs' chain."""
    return [batch.tolist() for _, batch in chain().iterator(epoch=number)]
