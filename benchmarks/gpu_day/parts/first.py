"""first: the first run of the README's chain on the GPU: its time, its warnings, the libraries it loads."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.inputs import chain, photographs
from benchmarks.gpu_day.plan import Part, Questions
from benchmarks.process import resident_bytes
from gpupipe.comparison.usage import nvml

__all__ = ["PART", "questions", "summary"]

PART = Part("first", "the README's chain: its first batch, warnings, libraries", 90, 80)

_WORDS = ("nvjpeg", "cufft", "npp", "libcuda", "cudart", "nvrtc", "nvcuvid", "nvimgcodec")


def questions(day: Day) -> Questions:
    """Return one question, for three batches."""
    return {"batches": lambda: _batches(day)}


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return times, types and warnings."""
    found = answers["batches"]
    lines = [f"first batch after {found['first_s']} s, the second {found['second_s']} s later: "
             f"{found['type']}{found['shape']}, labels {found['labels']}"]  # fmt: skip
    return lines + [f"warning: {text}" for text in found["warnings"]]


def _batches(day: Day) -> dict[str, Any]:
    files = photographs(day, day.batch * 3)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        started = time.perf_counter()
        with chain(day, files).iterator(0) as items:
            images, labels = next(items)
            one = time.perf_counter() - started
            next(items)
            two = time.perf_counter() - started - one
    maps = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if line.count("/")}
    return {
        "first_s": round(one, 2),
        "second_s": round(two, 3),
        "type": type(images).__name__,
        "shape": list(images.shape),
        "labels": type(labels).__name__,
        "warnings": [str(warning.message)[:300] for warning in heard],
        "libraries": sorted(path for path in maps if any(word in path for word in _WORDS)),
        "gpu_mib": nvml.memory_used(),
        "host_mib": resident_bytes(os.getpid()) >> 20,
    }
