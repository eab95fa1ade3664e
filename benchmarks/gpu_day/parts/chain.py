"""chain: the README's chain from memory: on the GPU, also with few threads, and on the same machine's CPU."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from benchmarks.gpu_day import inputs
from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.plan import Part, Questions

__all__ = ["PART", "questions", "summary"]

PART = Part("chain", "gpupipe from memory: images per second, CPU per image", 120, 60)


def questions(day: Day) -> Questions:
    """Return a question for each device and number of threads."""
    found: dict[str, Any] = {
        f"{day.device}": lambda: _epochs(day),
        f"{day.device}, 1 thread": lambda: _epochs(day, threads=1),
        f"{day.device}, 4 threads": lambda: _epochs(day, threads=4),
    }
    if not day.dry:
        found["cpu, DALI"] = lambda: _epochs(day, 8, device="cpu", backend="dali")
    return found


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return the best epoch of each."""
    return [f"{name}: {one['images_s']} images/s, {one['cpu_ms']} CPU-ms an image" for name, one in answers.items()]


def _epochs(day: Day, batches: int = 40, **options: Any) -> dict[str, float]:
    """Measure the fastest of three epochs, each from its start to its last batch."""
    ds = inputs.chain(day, inputs.photographs(day, day.batch * day.some(batches, 2)), **options)
    best = {"images_s": 0.0, "cpu_ms": 0.0}
    for epoch in range(day.some(3, 1)):
        started, cpu, count = time.perf_counter(), time.process_time(), 0
        for images, _ in ds.iterator(epoch):
            count += len(images)
        took, cpu = time.perf_counter() - started, time.process_time() - cpu
        if count / took > best["images_s"]:
            best = {"images_s": round(count / took, 1), "cpu_ms": round(cpu / count * 1e3, 4)}
    return best
