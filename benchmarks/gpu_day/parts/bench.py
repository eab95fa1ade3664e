"""bench: gpupipe against DALI pipelines written by hand, on the GPU: `python -m benchmarks bench-gpu`."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import tied
from benchmarks.gpu_day.day import ROOT, Day
from benchmarks.gpu_day.plan import Part, Questions

__all__ = ["PART", "questions", "summary"]

PART = Part("bench", "gpupipe against DALI by hand, in pairs", 480, 300, least=120)

_CONTESTANTS: Mapping[str, Sequence[str]] = {
    "gpupipe": ("dali-gpu-fancy", "gpupipe-gpu"),
    "the others": ("dali-gpu-fancy", "dali-gpu", "dali-gpu-roi"),
}
"""Question -> contestants, of which the first is the reference. What matters most comes first and is short."""
_SIZES = ("--pairs", "3", "--probes", "20", "--batch", "256", "--batches", "80", "--warmup", "20", "--timeout", "120")
_DRY = ("--pairs", "1", "--probes", "1", "--batches", "2", "--warmup", "1", "--shuffle", "16", "--timeout", "50")
_ENDING = 20.0
"""Seconds of a question that are reserved for the end of a comparison that is stopped, which then tells what it has."""


def questions(day: Day) -> Questions:
    """Return a question for each comparison; a dry run has one, of DALI with itself."""
    if day.dry:
        return {"a trial": lambda: _dry(day)}
    return {name: partial(_run, day, names, ("bench-gpu", *_SIZES)) for name, names in _CONTESTANTS.items()}


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return rates and ratios of each contestant, and why others took no part."""
    lines = []
    for found in answers.values():
        lines += [
            f"{name}: {one['images_s']} images/s, {one['cpu_ms']} CPU-ms an image; rate {one['rate_ratio']} and CPU "
            f"{one['cpu_ratio']} of {found['reference']}"
            for name, one in found["contestants"].items()
        ]
        lines += [f"{name} took no part: {why}" for name, why in found["not_measured"].items()]
        lines.append(found["file"] + (f", stopped by {found['stopped']}" if found.get("stopped") else ""))
    return lines


def _dry(day: Day) -> dict[str, Any]:
    from gpupipe.comparison.photographs import write_shards

    folder = Path(day.folder, "shards")
    folder.mkdir(exist_ok=True)
    write_shards(folder, 6, 2)
    return _run(day, ("dali",), ("chain", *_DRY, "--data", f"{folder}/*.tfrecord"))


def _run(day: Day, contestants: Sequence[str], words: Sequence[str]) -> dict[str, Any]:
    """Run a comparison, and stop it when the time is over; return its summary, that of the pairs so far if stopped.

    Raises:
        RuntimeError: there is no result.
    """
    out = Path(day.folder, "bench") if day.dry else Path(day.out)
    out.mkdir(parents=True, exist_ok=True)
    before = set(out.iterdir())
    command = tied.command("benchmarks", *words, "--contestants", ",".join(contestants))
    seconds = min(PART.limits(day)[1], day.until - time.monotonic()) - _ENDING
    with subprocess.Popen(
        [*command, "--out", str(out), "--scratch", day.folder], cwd=ROOT, env=day.environment()
    ) as process:
        try:
            status = process.wait(max(seconds, 0))
        except subprocess.TimeoutExpired:
            process.terminate()
            status = process.wait()
    new = [path for path in out.glob("chain*.json") if path not in before]
    if not new:
        raise RuntimeError(f"the comparison ended with {status} and no result; what it printed is kept with this part")
    return _told(new[0])


def _told(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text(encoding="utf-8"))
    contestants = {
        name: {
            "images_s": round(one["items_per_s"]["median"], 1),
            "cpu_ms": round(one["cpu_ms_per_item"]["median"], 4),
            "rate_ratio": round(one["rate_ratio"]["median"], 3),
            "cpu_ratio": round(one["cpu_ratio"]["median"], 3),
        }
        for name, one in found["summary"].items()
    }
    return {"file": path.name, "reference": found["reference"], "contestants": contestants,
            "not_measured": found["not_measured"], "stopped": found.get("stopped", "")}  # fmt: skip
