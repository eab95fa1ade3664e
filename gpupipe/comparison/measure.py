"""measure: run the training chain on one executor, alone in a process, and report what it cost.

CPU time, peak memory and the first batch then belong to that executor alone. The process reads its job from a JSON file
and writes messages, each a line of JSON after ``@``, so that a library's own output on stdout does no harm.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gpupipe.comparison.source import Source
from gpupipe.errors import GpupipeError

__all__ = ["Figures", "Job", "main"]

MARK = "@"
MIN_PASSES, MAX_PASSES, ENOUGH_SECONDS = 3, 9, 3.0


@dataclass(frozen=True, slots=True)
class Job:
    """One measurement, as plain data.

    Attributes:
        source: the files to read.
        device: as in `Options`.
        backend: as in `Options`.
        images: how many images a pass may have.
        batch: images per batch.
        size: pixels per side after the crop.
        keep: how many of the first batches to save, for comparing pixels.
        kept: the ``.npz`` file to save them in.
    """

    source: Source
    device: str
    backend: Literal["dali", "numpy"]
    images: int
    batch: int
    size: int
    keep: int
    kept: str


@dataclass(frozen=True, slots=True)
class Figures:
    """The cost of a pass over the data on one executor: medians over whole passes, after a warm-up pass.

    Attributes:
        images: delivered in one pass.
        passes: how many were measured.
        cpu_ms: CPU milliseconds per image of the whole process tree.
        images_per_second: by the wall clock.
        first_batch_s: seconds from building the chain to its first batch in a fresh process, a GPU's start included.
        peak_bytes: largest resident memory of the process; None if the system does not report it.
    """

    images: int
    passes: int
    cpu_ms: float
    images_per_second: float
    first_batch_s: float
    peak_bytes: int | None


def main(arguments: list[str]) -> int:
    """Run the job in the JSON file `arguments[0]`; 0 if it was measured, 1 after a message with ``error``."""
    document = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    job = Job(**{**document, "source": Source(**document["source"])})
    try:
        figures = measure(job)
    except GpupipeError as error:
        _say({"error": str(error)})
        return 1
    _say({"figures": asdict(figures)})
    return 0


def measure(job: Job) -> Figures:
    """Run the chain once to warm up and to keep the first batches, then for at least `MIN_PASSES` whole passes.

    Whole passes, from creating the iterator to its end, are a fair unit: batches prefetched before the clock starts
    would be free, and of a few hundred images they are a large part.
    """
    from gpupipe.comparison.chain import training_chain
    from gpupipe.options import Options

    started = time.perf_counter()
    dataset = training_chain(job.source, job.images, job.batch, job.size).with_options(
        Options(device=job.device, backend=job.backend)
    )
    first_batch_s, images = 0.0, 0
    kept: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]] = []
    for pixels, labels in dataset:
        if not images:
            first_batch_s = time.perf_counter() - started
        if len(kept) < job.keep:
            kept.append((_on_host(pixels), _on_host(labels)))
        images += len(labels)
        _say({"images": images})
    if not kept:
        raise GpupipeError(
            f"the demo needs at least {job.batch} images to fill a batch, got fewer in {job.source.name}"
        )
    np.savez(job.kept, images=np.concatenate([p for p, _ in kept]), labels=np.concatenate([n for _, n in kept]))

    cpu: list[float] = []
    wall: list[float] = []
    while len(wall) < MIN_PASSES or (sum(wall) < ENOUGH_SECONDS and len(wall) < MAX_PASSES):
        clock, used = time.perf_counter(), _cpu_seconds()
        last = deque(dataset, maxlen=1)
        _on_host(last[0][0][:1])  # on a GPU: wait until the last batch is computed
        cpu.append(_cpu_seconds() - used)
        wall.append(time.perf_counter() - clock)
        _say({"passes": len(wall)})
    return Figures(
        images=images,
        passes=len(wall),
        cpu_ms=statistics.median(cpu) / images * 1e3,
        images_per_second=images / statistics.median(wall),
        first_batch_s=first_batch_s,
        peak_bytes=_peak_bytes(),
    )


def _on_host(x: Any) -> npt.NDArray[Any]:
    """Return a NumPy array: a copy of a CuPy array, a view of any other."""
    return np.asarray(x.get() if hasattr(x, "get") else x)


def _cpu_seconds() -> float:
    """User and system time of this process, with all threads, and of the children it has waited for."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def _peak_bytes() -> int | None:
    """Peak resident memory of this process, None if the system does not report it."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux; there `ru_maxrss` starts from the peak of the parent process
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if sys.platform == "darwin":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return None


def _say(message: dict[str, Any]) -> None:
    print(MARK + json.dumps(message), flush=True)
