"""A process that has imported the large frameworks, of which every rank of every program of this folder is a fork.

`python -m tests.tensors.launch` takes a job as a line of JSON, and answers with a line what its ranks told.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from tests.chains.data import ROOT
from tests.tensors.programs import chain


class Launcher:
    """Starts the programs of this folder on the CPU."""

    def __init__(self, cache: Path) -> None:
        variables = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
        variables |= {"JAX_PLATFORMS": "cpu", "JAX_COMPILATION_CACHE_DIR": str(cache), "ACCELERATE_USE_CPU": "true"}
        variables |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "TF_CPP_MIN_LOG_LEVEL": "3"}
        self._environment = {**os.environ, **variables}
        self._process: subprocess.Popen[str] | None = None

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.tensors.launch"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                env=self._environment,
                start_new_session=True,
            )
        return self._process

    def __call__(
        self, program: str, *arguments: str, ranks: int = 1, imports: tuple[str, ...] = (), **environment: str
    ) -> list[dict[str, Any]]:
        """Run a program and return what each rank told, by rank.

        Args:
            program: the name of its file.
            arguments: its arguments.
            ranks: how many processes run it, with the variables that `torchrun` sets.
            imports: what is imported before the fork, so that it is imported once for all programs.
            environment: further variables.
        """
        job = {"program": program, "arguments": arguments, "ranks": ranks, "imports": imports, "variables": environment}
        process = self._started()
        assert process.stdin and process.stdout
        try:
            print(json.dumps(job), file=process.stdin, flush=True)
            found, errors = json.loads(process.stdout.readline())
        except BaseException:  # a timeout: what would be answered later is no answer to the next job
            self.close()
            raise
        assert errors is None, f"{program} {arguments} failed: {errors}"
        return sorted(found, key=lambda one: int(one["rank"]))

    def close(self) -> None:
        """End the process and its forks."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
            self._process = None


def expected(number: int) -> list[list[int]]:
    """The batches of an epoch of the programs' chain."""
    return [batch.tolist() for _, batch in chain().iterator(epoch=number)]


def main() -> None:
    """Answer jobs until the input ends."""
    for line in sys.stdin:
        job = json.loads(line)
        for name in job["imports"]:
            with contextlib.suppress(ImportError):  # only what is installed saves time
                importlib.import_module(name)
        print(json.dumps(answer(job)), flush=True)


def answer(job: dict[str, Any]) -> tuple[list[Any], str | None]:
    """What the ranks of a program told, and the errors if one of them failed."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
        free.close()
        outputs = [Path(folder, str(rank)) for rank in range(job["ranks"])]
        left = {start(job, rank, port, output) for rank, output in enumerate(outputs)}
        while left:
            child, status = os.wait()
            left.remove(child)
            if status:
                for other in left:  # they may wait for the one that failed
                    os.kill(other, signal.SIGKILL)
                    os.waitpid(other, 0)
                return [], "\n".join(output.read_text()[-3000:] for output in outputs)
        lines = [line for output in outputs for line in output.read_text().splitlines()]
        return [json.loads(line[line.index('{"rank"') :]) for line in lines if '{"rank"' in line], None


def start(job: dict[str, Any], rank: int, port: int, output: Path) -> int:
    """Fork a rank, whose output goes to a file."""
    if child := os.fork():
        return child
    status = 1
    try:
        with output.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        if job["ranks"] > 1:
            numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": job["ranks"], "LOCAL_WORLD_SIZE": job["ranks"]}
            names = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "none"}
            os.environ.update({name: str(value) for name, value in (numbers | names).items()})
        os.environ.update(job["variables"])
        path = str(ROOT / "tests" / "tensors" / f"{job['program']}.py")
        sys.argv = [path, *job["arguments"]]
        runpy.run_path(path, run_name="__main__")
        status = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
