"""child: one run of one contestant, in a process of its own. A job comes in on stdin, one line of JSON goes out.

The measured window starts after the warm-up batches, when queues and autotuners have settled, and ends with a batch in
hand. Within it this process only takes the next batch.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import asdict, replace
from typing import Any

from benchmarks import checkout
from benchmarks.cifar_data import describe as describe_cifar
from benchmarks.contestants import CONTESTANTS, batches, host_passes
from benchmarks.job import Job, Run
from benchmarks.probe import audit_images, audit_records
from benchmarks.process import OwnPeak, peak_bytes, resident_parts, tree_cpu_seconds

__all__ = ["main", "measure"]

# Imported before the contestant's own code starts, as is its file: first_batch_s contains no import of these.
_LIBRARIES = (
    "torch",
    "tensorflow",
    "nvidia.dali",
    "nvidia.dali.fn",
    "nvidia.dali.tfrecord",
    "keras",
    "PIL.Image",
    "cv2",
    "grain",
    "turboloader",
)


def main() -> int:
    """Do the job on stdin; print its report as the last line of stdout."""
    job = Job.from_json(sys.stdin.readline())
    out = os.dup(1)
    os.dup2(2, 1)  # libraries print to stdout, where only the report belongs
    report = json.dumps(_report(job))
    with os.fdopen(out, "w") as stdout:
        print(report, file=stdout)
    return 0


def measure(job: Job, iterator: Iterator[tuple[Any, Any]], created: float) -> Run:
    """Take the batches of a job and time the window.

    Args:
        iterator: the contestant's pass.
        created: `time.monotonic()` before the iterator was created, in seconds.

    Raises:
        ValueError: if the pass ends before the window does.
    """
    batch, _ = _take(job, iterator, 1)
    first, first_cpu = time.monotonic(), tree_cpu_seconds()
    if job.warmup > 1:
        batch, _ = _take(job, iterator, job.warmup - 1)
    _settle(batch)
    cpu, start = tree_cpu_seconds(), time.perf_counter()
    batch, items = _take(job, iterator, job.batches)
    _settle(batch)
    seconds, cpu = time.perf_counter() - start, tree_cpu_seconds() - cpu
    images = batch[0]
    return Run(
        contestant=job.contestant,
        items=items,
        seconds=seconds,
        cpu_seconds=cpu,
        first_batch_s=first - created,
        start_s=first - job.started,
        peak_rss_mb=peak_bytes() / 1e6,
        shape=_shape(images),
        dtype=getattr(images.dtype, "name", str(images.dtype)).removeprefix("torch.").lower(),
        first_cpu_seconds=first_cpu,
    )


def _report(job: Job) -> dict[str, Any]:
    contestant = CONTESTANTS[job.contestant]
    for name in _LIBRARIES:
        if any(need == name.partition(".")[0] or name.startswith(need) for need in contestant.needs):
            importlib.import_module(name)
    if "gpupipe" in contestant.needs:
        _ = importlib.import_module("gpupipe").Dataset  # the first use of a name imports the rest
        checkout.verify(job.checkout)
    importlib.import_module(f"benchmarks.contestants.{contestant.module}")
    created = time.monotonic()
    if job.mode == "damaged":
        return {"error": _error(job)}
    if job.mode == "memory":
        return _memory(job)
    if job.mode == "host":
        return asdict(measure_pass(job, created))
    if job.mode == "host-audit":
        return audit_pass(job)
    if job.mode == "flowers":
        return measure_epochs(job, created)
    if job.mode == "flowers-audit":
        from benchmarks.flowers import describe  # imports gpupipe, which only its contestants need

        epochs = host_passes(job)
        return asdict(describe(job.contestant, (epochs() for _ in range(job.batches))))
    if job.mode == "cifar":
        later: dict[str, Any] = measure_epochs(job, created)["later"]
        return later
    if job.mode == "cifar-audit":
        epochs = host_passes(job)
        return asdict(describe_cifar(job.contestant, (epochs() for _ in range(job.batches)), job.elements))
    iterator = batches(job)
    if job.mode == "audit":
        if contestant.work == "extract":
            return asdict(audit_records(job.contestant, iterator))
        return asdict(audit_images(job.contestant, iterator, normalised=contestant.work != "chain-uncropped-linear"))
    if job.mode == "training":
        shares = measure_waiting(job, iterator)
        _close(iterator)
        return shares
    run = measure(job, iterator, created)
    _close(iterator)
    return asdict(run)


def measure_waiting(job: Job, iterator: Iterator[tuple[Any, Any]]) -> dict[str, float]:
    """Take a batch and sleep for `job.step`, in turn; return the share of the window that was spent taking batches."""
    for _ in range(job.warmup):
        _take(job, iterator, 1)
        time.sleep(job.step)
    waited, items = 0.0, 0
    cpu, start = tree_cpu_seconds(), time.perf_counter()
    for _ in range(job.batches):
        asked = time.perf_counter()
        batch, rows = _take(job, iterator, 1)
        _settle(batch)
        waited += time.perf_counter() - asked
        items += rows
        time.sleep(job.step)
    seconds, cpu = time.perf_counter() - start, tree_cpu_seconds() - cpu
    return {"waited": waited / seconds, "images_per_s": items / seconds, "cpu_ms_per_item": cpu / items * 1e3}


def measure_pass(job: Job, created: float) -> Run:
    """Time one whole pass of a host chain, after a first batch, for which one-time work is done."""
    passes = host_passes(job)
    warm = iter(passes())
    next(warm)
    first = time.monotonic()
    _close(warm)
    cpu, start = tree_cpu_seconds(), time.perf_counter()
    last = deque(passes(), maxlen=1)
    seconds, cpu = time.perf_counter() - start, tree_cpu_seconds() - cpu
    return Run(
        contestant=job.contestant,
        items=job.elements,
        seconds=seconds,
        cpu_seconds=cpu,
        first_batch_s=first - created,
        start_s=first - job.started,
        peak_rss_mb=peak_bytes() / 1e6,
        shape=_shape(last[0]),
        dtype=str(getattr(last[0], "dtype", "")),
    )


def measure_epochs(job: Job, created: float) -> dict[str, Any]:
    """Time the first epoch, with all that is made for it, and the `job.batches` after it."""
    cpu, start = tree_cpu_seconds(), time.perf_counter()
    passes = host_passes(job)
    found: dict[str, Any] = {}
    for name, count in (("first", 1), ("later", job.batches)):
        items, first = 0, 0.0
        for _ in range(count):
            for images, _ in passes():
                first = first or time.monotonic()
                items += len(images)
        seconds, used = time.perf_counter() - start, tree_cpu_seconds() - cpu
        found[name] = asdict(Run(
            contestant=job.contestant, items=items, seconds=seconds, cpu_seconds=used, first_batch_s=first - created,
            start_s=first - job.started, peak_rss_mb=peak_bytes() / 1e6, shape=_shape(images),
            dtype=str(images.dtype).removeprefix("torch."),
        ))  # fmt: skip
        cpu, start = tree_cpu_seconds(), time.perf_counter()
    return found


def audit_pass(job: Job) -> dict[str, Any]:
    """Describe one pass of a host chain: its batches, rows, dtype, and the sum of its values."""
    shapes, total, dtype = [], 0.0, ""
    for batch in host_passes(job)():
        shapes.append(_shape(batch))
        total += float(batch.sum())
        dtype = str(batch.dtype)
    return {"batches": len(shapes), "rows": sum(n for n, *_ in shapes), "row": shapes[0][1:], "sum": total,
            "dtype": dtype}  # fmt: skip


def _memory(job: Job) -> dict[str, Any]:
    """Measure what the shuffle buffer adds to a process that has read without one before (readers, allocators)."""
    plain = batches(replace(job, shuffle=1))
    _take(job, plain, job.warmup)
    _close(plain)
    before = resident_parts()
    watch, cpu = OwnPeak(), tree_cpu_seconds()
    items = sum(len(labels) for _, labels in batches(job))
    after, cpu = watch.stop(), tree_cpu_seconds() - cpu
    rise = {name: round(after[name] - before[name], 2) for name in before}
    return {
        "contestant": job.contestant,
        "items": items,
        "rise_mb": round(sum(rise.values()), 2),
        **rise,
        "cpu_seconds": cpu,
    }


def _take(job: Job, iterator: Iterator[tuple[Any, Any]], count: int) -> tuple[tuple[Any, Any], int]:
    """Take `count` batches; return the last one and the number of rows in total."""
    batch, rows = None, 0
    for _ in range(count):
        batch = next(iterator, None)
        if batch is None:
            raise ValueError(
                f"{job.contestant} needs files for {job.warmup + job.batches} batches of {job.batch}, got fewer; "
                "pass more files or fewer --batches"
            )
        rows += _shape(batch[1])[0]
    assert batch is not None
    return batch, rows


def _shape(array: Any) -> tuple[int, ...]:
    shape: Any = array.shape
    if callable(shape):  # a method in DALI's tensors
        shape = shape()
    return tuple(int(n) for n in shape)


def _settle(batch: tuple[Any, Any]) -> None:
    """Wait until the batch is complete: a CuPy array may still be written to."""
    if hasattr(batch[0], "__cuda_array_interface__") and "cupy" in sys.modules:
        sys.modules["cupy"].cuda.runtime.deviceSynchronize()


def _close(iterator: Iterator[tuple[Any, Any]]) -> None:
    if isinstance(iterator, Generator):
        iterator.close()


def _error(job: Job) -> str:
    """Read files with a wrong checksum; return the error's text, "" if it was not noticed."""
    try:
        for _ in batches(job):
            pass
    except Exception as error:  # any class, depending on the contestant's library; the text is the result
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
