"""bad: errors of the GPU's decoders on damaged images, the batch after them, memory lost by failures."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.decoders import decoding, differences, make, rows
from benchmarks.gpu_day.inputs import damaged, photographs
from benchmarks.gpu_day.plan import Part, Questions
from benchmarks.process import resident_bytes
from gpupipe.comparison.usage import nvml

__all__ = ["PART", "questions", "summary"]

PART = Part("bad", "damaged images: the errors, the batch after them, memory that is lost", 90, 40)


def questions(day: Day) -> Questions:
    """Return a question for each kind of damage, and one with many failures."""
    kinds = damaged(photographs(day, 1)[0])
    return {**{name: partial(_aftermath, day, data) for name, data in kinds.items()},
            "leak": lambda: _leak(day, kinds["Huffman tables"])}  # fmt: skip


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return the errors, and the difference of the next batch."""
    lines = [f"{name}: {found['said']}; the next batch differs by {found['next']}"
             for name, found in answers.items() if name != "leak"]  # fmt: skip
    if "leak" in answers:
        lines.append(f"(host, GPU) MiB while {answers['leak']['failures']} batches fail: {answers['leak']['held']}")
    return lines


def _aftermath(day: Day, data: bytes) -> dict[str, Any]:
    from gpupipe.transform.dali.failures import cause_of

    good = photographs(day, 4)
    pipeline = make(day, decoding(), 4)
    whole = rows(pipeline, good)
    said = []
    for index in (0, 3):
        files = list(good)
        files[index] = data
        try:
            rows(pipeline, files)
            said.append("decoded")
        except RuntimeError as error:
            said.append(cause_of(str(error))[:200])
    try:
        after: Any = differences(rows(pipeline, good), whole)["most"]
    except RuntimeError as error:
        after = f"failed: {cause_of(str(error))[:200]}"
    return {"said": said, "next": after}


def _leak(day: Day, data: bytes) -> dict[str, Any]:
    good = photographs(day, 4)
    pipeline = make(day, decoding(), 4)
    times = day.some(300, 6)
    held = []
    failures = 0
    for n in range(times):
        try:
            rows(pipeline, [data, *good[1:]])
        except RuntimeError:
            failures += 1
        if n % (times // 3) == 0:
            held.append((resident_bytes(os.getpid()) >> 20, nvml.memory_used()))
    return {"failures": failures, "held": held}
