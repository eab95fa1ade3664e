"""contestants: the executors that can be compared, and a chain on one of them in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol

import numpy as np

from gpupipe.comparison.measure import MARK, Job
from gpupipe.comparison.rounds import Delivered, Round
from gpupipe.errors import GpupipeError, Lines, PlanError
from gpupipe.transform.machine import dali_missing, fast_trouble, gpu_count, has_dali

from ..classes import dataclass

__all__ = ["EXECUTORS", "Alone", "Contestant", "Executor"]

# The folder of this gpupipe, which replaces the working directory that `-c` puts first on the path: a stray random.py
# there must not be imported, and the gpupipe measured must be this one.
_ROOT = str(Path(__file__).resolve().parents[2])
_CODE = "import sys; sys.path[0] = {root!r}; from {module} import main; sys.exit(main())"


@dataclass(frozen=True, slots=True)
class Executor:
    """One way of running a chain.

    Attributes:
        key: its name on the command line.
        title: its name in tables.
        device: as in `Options`.
        backend: as in `Options`.
    """

    key: str
    title: str
    device: str
    backend: Literal["dali", "fast", "numpy"]

    def missing(self) -> str:
        """Return why this machine cannot run it, "" if it can."""
        if self.device == "gpu" and not gpu_count():
            return "no GPU"
        if self.backend == "dali" and not has_dali():
            return dali_missing()
        if self.backend == "fast" and (trouble := fast_trouble()):
            return trouble
        return ""


EXECUTORS: tuple[Executor, ...] = (
    Executor("dali-gpu", "DALI GPU", "gpu", "dali"),
    Executor("dali-cpu", "DALI CPU", "cpu", "dali"),
    Executor("fast", "Fast", "cpu", "fast"),
    Executor("numpy", "NumPy", "cpu", "numpy"),
)


def check_any_runs(keys: Sequence[str]) -> None:
    """Check that this machine can run one of some executors; no keys mean all.

    Raises:
        PlanError: it can run none.
    """
    missing = {one.title: one.missing() for one in EXECUTORS if not keys or one.key in keys}
    if all(missing.values()):
        why = "; ".join(f"{title}: {reason}" for title, reason in missing.items())
        raise PlanError(f"no executor could be measured: {why}")


class Contestant(Protocol):
    """A chain on one executor, in this process (`Runner`) or in one of its own (`Alone`)."""

    def round(self, said: Callable[[int], None] = ...) -> Round:
        """Run one pass; `said` is called with the images delivered so far."""
        ...

    def waiting(self, rate: float) -> float | None:
        """The share of its time that a consumer of `rate` images/s waits; None if there is one batch only."""
        ...

    def bottleneck(self) -> tuple[str, str]:
        """What limits the rate, and what would raise it, in words."""
        ...

    def first(self, count: int) -> Delivered:
        """The first rows, `count` at most."""
        ...


class Alone:
    """A chain on one executor in a process of its own, which works while it is asked and sleeps otherwise.

    Args:
        job: the chain.
        folder: an existing folder for the process's log and its images.
        module: whose function `main` serves the job.
    """

    def __init__(self, job: Job, folder: Path, module: str = "gpupipe.comparison.measure") -> None:
        stem = f"{job.device}-{job.backend}"
        self._log, self._images = folder / f"{stem}.log", folder / f"{stem}.npz"
        command = [sys.executable, "-c", _CODE.format(root=_ROOT, module=module)]
        with open(self._log, "wb") as errors:
            # In a session of its own Ctrl-C does not reach it: this process ends it, without a second traceback.
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
            )
        self._tell(asdict(job))

    def round(self, said: Callable[[int], None] = lambda images: None) -> Round:
        """See `Contestant`."""
        return Round.of_json(self._ask(said, do="round"))

    def waiting(self, rate: float) -> float | None:
        """See `Contestant`."""
        waited: float | None = self._ask(do="waiting", rate=rate)
        return waited

    def bottleneck(self) -> tuple[str, str]:
        """See `Contestant`."""
        what, remedy = self._ask(do="bottleneck")
        return what, remedy

    def first(self, count: int) -> Delivered:
        """See `Contestant`."""
        self._ask(do="first", count=count, path=str(self._images))
        with np.load(self._images) as arrays:
            return Delivered.of_arrays(arrays)

    def _ask(self, said: Callable[[int], None] = lambda images: None, **task: Any) -> Any:
        """Let the process do a task.

        Raises:
            PlanError: this machine cannot run the chain so.
            GpupipeError: it failed; the text is its own error, or the end of the log of a process that crashed.
        """
        process = self._process
        assert process.stdout is not None
        self._tell(task)
        for line in process.stdout:
            if not line.startswith(MARK.encode()):
                continue
            message = json.loads(line[len(MARK) :])
            if "answer" in message:
                return message["answer"]
            if "error" in message:
                raise (PlanError if message["cannot"] else GpupipeError)(Lines(message["error"]))
            said(message["images"])
        status = process.wait()
        text = self._log.read_text(encoding="utf-8", errors="replace").strip()
        raise GpupipeError(Lines(f"its process ended with status {status}; the end of its log:\n{text[-2000:]}"))

    def _tell(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has crashed, which its missing answer tells
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def __enter__(self) -> Alone:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the process."""
        _end(self._process)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):  # a task that it did not read
                pipe.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and its children, if it is still running."""
    if process.poll() is not None:
        return
    if sys.platform == "win32":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)  # it leaves nothing behind: its files are in our folder
    process.wait()
