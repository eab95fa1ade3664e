"""cifar: 50,000 images of 32x32 in memory: shuffle, pad by 4, random crop, random flip, normalise, batch.

tf.data and torch take part twice: image by image, as their users write it, and with whole batches at once, for which
the crop has to be written by hand with gathers and strides.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.cifar_data import PROBES
from benchmarks.contestants import CONTESTANTS, missing
from benchmarks.equal import UnequalWork, check
from benchmarks.job import Audit, Job
from benchmarks.pairs import ContestantFailed, run_pairs, spawn

__all__ = ["GOAL", "cifar", "goals"]

REFERENCE = "cifar-gpupipe"
TIMES = 8
EPOCHS = 2
GOAL = 2.0
"""The project's goal: images per CPU-second, relative to every other contestant."""


def cifar(
    out: Path, *, contestants: Sequence[str] = (), images: int = 50_000, batch: int = 128, pairs: int = 9,
    threads: int = 2,
) -> Path:  # fmt: skip
    """Measure every contestant in alternating pairs with gpupipe, over two epochs after a first one; print a table.

    Args:
        out: folder of the result file.
        contestants: names; empty means all. gpupipe, the reference, always takes part.
        images: fewer make it shorter.
        batch: rows in a batch; a short last batch is dropped.
        pairs: for each contestant.
        threads: or worker processes of a contestant.

    Raises:
        UnequalWork: an unknown name, or contestants that do not deliver the same.
        ContestantFailed: the reference, or any contestant while its output is audited, ends without a report.
    """
    known = [name for name, one in CONTESTANTS.items() if one.work == "cifar"]
    if wrong := [name for name in contestants if name not in known]:
        raise UnequalWork(f"cifar needs contestants out of {', '.join(known)}, got {', '.join(wrong)}")
    asked = [name for name in known if name in (*(contestants or known), REFERENCE)]
    absent = {name: why for name in asked if (why := missing(CONTESTANTS[name]))}
    names = [name for name in asked if name not in absent]
    job = Job(REFERENCE, (), "cifar-audit", batch=64, batches=TIMES, threads=threads, elements=PROBES)
    audits = [audit(replace(job, contestant=name)) for name in names]
    check(audits, {str(TIMES): PROBES})
    job = replace(job, mode="cifar", batch=batch, batches=EPOCHS, elements=images, prefetch=2)

    def failed(error: ContestantFailed) -> None:
        print(f"{error.contestant} takes no part: {error}", file=sys.stderr, flush=True)
        absent[error.contestant] = f"failed: {error.reason}"

    took = []
    for pair in run_pairs(job, names, REFERENCE, pairs, on_failure=failed):
        took.append(pair)
        print(f"{pair.contestant} {pair.run.cpu_ms / pair.reference.cpu_ms:.2f}", file=sys.stderr, flush=True)
    took = [pair for pair in took if pair.contestant not in absent]
    found = report.summary(took, REFERENCE)
    print(report.table(found, REFERENCE, absent, "image"))
    print(goals(found))
    settings = {"images": images, "batch": batch, "pairs": pairs, "threads": threads, "epochs": EPOCHS}
    return report.write(report.document("cifar", settings, took, REFERENCE, audits, absent), out)


def audit(job: Job) -> Audit:
    """Describe what a contestant makes of the probes."""
    found, _ = spawn(job)
    return Audit(**{**found, "shape": tuple(found["shape"])})


def goals(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Say for each contestant of another library whether gpupipe delivers `GOAL` times its images per CPU-second."""
    lines = []
    for name in (name for name in found if not name.startswith(REFERENCE)):
        ratio = found[name]["cpu_ratio"].median
        how = "met" if ratio >= GOAL else "NOT met"
        lines.append(f"goal: {GOAL:g}x the images/CPU-second of {CONTESTANTS[name].label}: {how}, {ratio:.2f}x")
    return "\n".join(lines)
