"""cached: epochs over images that stay decoded in GPU memory, compared with those that are decoded each time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any

from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.inputs import chain, photographs, sums
from benchmarks.gpu_day.plan import Part, Questions

__all__ = ["PART", "questions", "summary"]

PART = Part("cached", "epochs of images cached on the GPU, compared with decoding them each time", 90, 40, least=30)

_DECODED, _CACHED = "decoded each time", "cached"


def questions(day: Day) -> Questions:
    """Ask about decoding each time, then about the cache."""
    return {_DECODED: partial(_epochs, day, False), _CACHED: partial(_epochs, day, True)}


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return images per second and CPU-milliseconds per image of each, and how many times the rate the cache has."""
    lines = [
        f"{name}: first epoch {one['first_images_s']} images/s, later {one['images_s']}, {one['cpu_ms']} CPU-ms each"
        for name, one in answers.items()
    ]
    if {_DECODED, _CACHED} <= answers.keys():
        lines.append(f"cached: {answers[_CACHED]['images_s'] / answers[_DECODED]['images_s']:.2f} times (goal 5)")
    return lines


def _epochs(day: Day, cached: bool) -> dict[str, float]:
    """Time the first epoch, and some later ones together."""
    count, later = day.batch * day.some(16, 2), day.some(5, 1)
    ds = chain(day, photographs(day, count), cached=cached)
    took, cpu = [], []
    for epoch in range(1 + later):
        started, used = time.perf_counter(), time.process_time()
        (batch,) = deque(ds.iterator(epoch), maxlen=1)
        sums(*batch)  # waits until the last one is there
        took.append(time.perf_counter() - started)
        cpu.append(time.process_time() - used)
    return {
        "first_images_s": round(count / took[0], 1),
        "images_s": round(count * later / sum(took[1:]), 1),
        "cpu_ms": round(sum(cpu[1:]) / (count * later) * 1e3, 4),
    }
