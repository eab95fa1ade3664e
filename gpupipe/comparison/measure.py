"""measure: run a chain on one executor, alone in a process, and report what it costs, whenever it is asked.

CPU time, peak memory and the first batch then belong to that executor alone. The process reads its job and its tasks
from stdin, a line of JSON each: no file and no list of processes shows the URLs of the data. It writes messages to
stdout, each a line of JSON after ``@``. What functions of the user's and libraries print while it serves goes to
stderr.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from gpupipe.comparison.rounds import Runner
from gpupipe.comparison.source import Source
from gpupipe.errors import GpupipeError, MissingDependencyError, PlanError

from ..classes import dataclass

__all__ = ["MARK", "Job", "main", "serve"]

MARK = "@"


@dataclass(frozen=True, slots=True)
class Job:
    """One chain on one executor, as plain data.

    Attributes:
        device: as in `Options`.
        backend: as in `Options`.
        images: a pass ends after so many.
        source: the files of the README's chain; None for a dataset of the user's.
        batch: images per batch of that chain.
        size: pixels per side after its crop.
        dataset: ``FILE.py:NAME`` of a dataset of the user's.
    """

    device: str
    backend: Literal["dali", "fast", "numpy"]
    images: int
    source: Source | None = None
    batch: int = 0
    size: int = 0
    dataset: str = ""

    @classmethod
    def read(cls) -> Job:
        """Read the job, the first line of stdin."""
        document = json.loads(sys.stdin.readline())
        source = document["source"]
        return cls(**{**document, "source": None if source is None else Source(**source)})


def main() -> int:
    """Serve the job that stdin begins with, over the README's chain."""
    from gpupipe.comparison.chain import training_chain

    job = Job.read()
    assert job.source is not None
    return serve(training_chain(job.source, job.images, job.batch, job.size), job)


def serve(dataset: Any, job: Job) -> int:
    """Do what stdin asks until it ends; an error of gpupipe or a lack of memory is an answer, and tasks go on."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as messages:
        os.dup2(2, 1)

        def say(message: dict[str, Any]) -> None:
            print(MARK + json.dumps(message), file=messages, flush=True)

        runner = Runner.on(dataset, job.device, job.backend, job.images)
        for line in sys.stdin:
            task = json.loads(line)
            try:
                say({"answer": _answer(runner, say, **task)})
            except (GpupipeError, MemoryError) as error:
                say({"error": str(error), "cannot": isinstance(error, PlanError | MissingDependencyError)})
    return 0


def _answer(runner: Runner, say: Callable[[dict[str, Any]], None], do: str, **arguments: Any) -> Any:
    match do:
        case "round":
            return runner.round(lambda images: say({"images": images})).json()
        case "waiting":
            return runner.waiting(arguments["rate"])
        case "bottleneck":
            return runner.bottleneck()
        case "first":
            arrays: dict[str, Any] = runner.first(arguments["count"]).arrays()
            np.savez(arguments["path"], **arrays)
            return None
    raise GpupipeError(f"a task needs to be known, got {do!r}; please report it")
