"""lifetime: whether kept batches stay unchanged, and whether their memory is freed when they are dropped."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.inputs import chain, photographs, sums
from benchmarks.gpu_day.plan import Part, Questions
from gpupipe.comparison.usage import nvml

__all__ = ["PART", "questions", "summary"]

PART = Part("lifetime", "batches that are kept, and the memory of those that are dropped", 60, 50)


def questions(day: Day) -> Questions:
    """Return one question: some batches are kept over many epochs."""
    return {"kept": lambda: _kept(day)}


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return whether they were unchanged, and MiB of the card."""
    one = answers["kept"]
    how = "unchanged" if one["unchanged"] else "CHANGED"
    return [f"{how} over {one['epochs']} epochs; card: {one['kept_mib']} MiB with, {one['dropped_mib']} MiB without"]


def _kept(day: Day) -> dict[str, Any]:
    import gpupipe as gp

    files = photographs(day, day.batch * 2)
    ds = chain(day, files)
    kept = list(ds.iterator(0))
    before = [sums(*batch) for batch in kept]
    epochs = day.some(12, 2)
    for epoch in range(epochs):
        for batch in ds.iterator(epoch + 1):
            del batch
    gp.release_memory()
    after = [sums(*batch) for batch in kept]
    with_them = nvml.memory_used()
    kept.clear()
    gc.collect()
    time.sleep(0.5)  # the thread that frees tensors waits for the device
    gp.release_memory()
    return {"unchanged": before == after, "epochs": epochs, "kept_mib": with_them, "dropped_mib": nvml.memory_used()}
