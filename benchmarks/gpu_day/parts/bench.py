"""bench: gpupipe against DALI pipelines written by hand, on the GPU: `python -m benchmarks bench-gpu`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import tied
from benchmarks.gpu_day.day import ROOT, Day
from benchmarks.gpu_day.plan import Part, Questions

__all__ = ["PART", "questions", "summary"]

PART = Part("bench", "gpupipe against DALI by hand, in pairs", 480, 450, least=300)

_HERE = ("dali-gpu-fancy", "dali-gpu", "dali-gpu-roi", "gpupipe-gpu")
_SURE = ("dali-gpu-fancy", "gpupipe-gpu")
_SIZES = ("--pairs", "3", "--probes", "20", "--batch", "256", "--batches", "80", "--warmup", "20", "--timeout", "120")
_DRY = ("--pairs", "1", "--probes", "1", "--batches", "2", "--warmup", "1", "--shuffle", "16", "--timeout", "50")


def questions(day: Day) -> Questions:
    """Return one question, the whole comparison."""
    return {"pairs": lambda: _dry(day) if day.dry else _compared(day)}


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return rates and ratios of each contestant, and why others took no part."""
    found = answers["pairs"]
    lines = [
        f"{name}: {one['images_s']} images/s, {one['cpu_ms']} CPU-ms an image; rate {one['rate_ratio']} and CPU "
        f"{one['cpu_ratio']} of {found['reference']}"
        for name, one in found["contestants"].items()
    ]
    return lines + [f"{name} took no part: {why}" for name, why in found["not_measured"].items()] + [found["file"]]


def _compared(day: Day) -> dict[str, Any]:
    """Compare all contestants; if they do unequal work, only the two that matter most."""
    words = ("bench-gpu", *_SIZES)
    return _run(day, _HERE, words) or _run(day, _SURE, words) or _refused()


def _dry(day: Day) -> dict[str, Any]:
    from gpupipe.comparison.photographs import write_shards

    folder = Path(day.folder, "shards")
    folder.mkdir(exist_ok=True)
    write_shards(folder, 6, 2)
    return _run(day, ("dali",), ("chain", *_DRY, "--data", f"{folder}/*.tfrecord")) or _refused()


def _refused() -> dict[str, Any]:
    raise RuntimeError("the comparison was refused; what it printed is kept with this part")


def _run(day: Day, contestants: Sequence[str], words: Sequence[str]) -> dict[str, Any] | None:
    """Run a comparison; return its summary, or None if it was refused."""
    out = Path(day.folder, "bench") if day.dry else Path(day.out)
    out.mkdir(parents=True, exist_ok=True)
    before = set(out.iterdir())
    command = tied.command("benchmarks", *words, "--contestants", ",".join(contestants))
    done = subprocess.run([*command, "--out", str(out), "--scratch", day.folder], cwd=ROOT, env=day.environment())
    new = [path for path in out.glob("chain*.json") if path not in before]
    if done.returncode or not new:
        return None
    found = json.loads(new[0].read_text(encoding="utf-8"))
    contestants_found = {
        name: {
            "images_s": round(one["items_per_s"]["median"], 1),
            "cpu_ms": round(one["cpu_ms_per_item"]["median"], 4),
            "rate_ratio": round(one["rate_ratio"]["median"], 3),
            "cpu_ratio": round(one["cpu_ratio"]["median"], 3),
        }
        for name, one in found["summary"].items()
    }
    return {"file": new[0].name, "reference": found["reference"], "contestants": contestants_found,
            "not_measured": found["not_measured"]}  # fmt: skip
