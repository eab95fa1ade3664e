"""memory: the memory of a decoder on card and host, by its number of threads, and of idle pipelines."""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.decoders import decoding, make, rows
from benchmarks.gpu_day.inputs import chain, photographs
from benchmarks.gpu_day.plan import Part, Questions
from benchmarks.process import resident_bytes
from gpupipe.comparison.usage import nvml

__all__ = ["PART", "questions", "summary"]

PART = Part("memory", "memory of decoders by threads, and of idle pipelines", 90, 40)


def questions(day: Day) -> Questions:
    """Ask about decoders of 1 to 64 threads, then about gpupipe's chain."""
    return {
        **{f"{n} threads": partial(_decoder, day, n) for n in ((1, 4, 16, 64) if not day.dry else (1, 4))},
        "the chain": lambda: _chain(day),
    }


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return MiB before, with and after."""
    return [f"{name}: (card, host) MiB {found}" for name, found in answers.items()]


def _held() -> tuple[int, int]:
    return nvml.memory_used(), resident_bytes(os.getpid()) >> 20


def _decoder(day: Day, threads: int) -> dict[str, tuple[int, int]]:
    backend: Any = importlib.import_module("nvidia.dali.backend")
    files = photographs(day, day.batch)
    before = _held()
    pipeline = make(day, decoding(), threads=threads)
    rows(pipeline, files)
    within = _held()
    del pipeline
    gc.collect()
    backend.ReleaseUnusedMemory()
    return {"before": before, "with it": within, "released": _held()}


def _chain(day: Day) -> dict[str, tuple[int, int]]:
    import gpupipe as gp

    files = photographs(day, day.batch * 4)
    before = _held()
    with chain(day, files).iterator(0) as items:
        for batch in items:
            del batch
        within = _held()
    idle = _held()
    gp.release_memory()
    return {"before": before, "with it": within, "idle": idle, "released": _held()}
