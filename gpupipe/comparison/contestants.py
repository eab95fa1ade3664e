"""contestants: the executors that can be compared, and one run of one of them in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from gpupipe.comparison.measure import MARK, Figures, Job
from gpupipe.errors import GpupipeError
from gpupipe.transform.machine import gpu_count, has_dali

__all__ = ["EXECUTORS", "Executor", "run_alone"]

# The folder of this gpupipe, which replaces the working directory that `-c` puts first on the path: a stray random.py
# there must not be imported, and the gpupipe measured must be this one.
_ROOT = str(Path(__file__).resolve().parents[2])
_CODE = "import sys; sys.path[0] = {root!r}; from gpupipe.comparison.measure import main; sys.exit(main(sys.argv[1:]))"


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
    backend: Literal["dali", "numpy"]

    def missing(self) -> str:
        """Return why this machine cannot run it, "" if it can."""
        if self.device == "gpu" and not gpu_count():
            return "no GPU"
        if self.backend == "dali" and not has_dali():
            return "DALI is not installed"
        return ""


EXECUTORS: tuple[Executor, ...] = (
    Executor("dali-gpu", "DALI GPU", "gpu", "dali"),
    Executor("dali-cpu", "DALI CPU", "cpu", "dali"),
    Executor("numpy", "NumPy", "cpu", "numpy"),
)


def run_alone(job: Job, folder: Path, progress: Callable[[dict[str, Any]], None]) -> Figures:
    """Run `job` in a process of its own and wait for it.

    Args:
        job: what to measure.
        folder: an existing folder for the job's file and the process's log.
        progress: called with ``{"images": n}`` during the warm-up and ``{"passes": n}`` during the measurement.

    Raises:
        GpupipeError: the run failed; the text is its own error, or the end of the log of a process that crashed.
    """
    stem = f"{job.device}-{job.backend}"
    document, log = folder / f"{stem}.json", folder / f"{stem}.log"
    document.write_text(json.dumps(asdict(job)), encoding="utf-8")
    command = [sys.executable, "-c", _CODE.format(root=_ROOT), str(document)]
    answer: dict[str, Any] = {}
    with open(log, "wb") as errors:
        # In a session of its own Ctrl-C does not reach it: this process ends it, and no second traceback is printed.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith(MARK.encode()):
                    answer = json.loads(line[len(MARK) :])
                    progress(answer)
            process.wait()
        finally:
            process.stdout.close()
            _end(process)
    if "figures" in answer:
        return Figures(**answer["figures"])
    if "error" in answer:
        raise GpupipeError(answer["error"])
    text = log.read_text(encoding="utf-8", errors="replace").strip()
    raise GpupipeError(f"its process ended with status {process.returncode}; the end of its log:\n{text[-2000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and its children, if it is still running."""
    if process.poll() is not None:
        return
    if sys.platform == "win32":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)  # it leaves nothing behind: its files are in our folder
    process.wait()
