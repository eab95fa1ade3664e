"""augment: what augmentations cost with DALI on the CPU, beside DALI's operators by hand and torchvision's on Pillow.

Images of 224x224 go from arrays in memory to a batch in memory, in this process. A window is the CPU time of all of its
threads from a moment when none of them works to the next: what is computed ahead belongs to the window that asked for
it. The two contestants of a question alternate, every second pair in reverse order, and each pair has a third window,
of gpupipe again, which is the noise. What can be given equal settings without chance is compared before it is timed.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from time import monotonic, process_time, sleep
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.equal import UnequalWork
from benchmarks.suites.augmenters import QUESTIONS, SIDE, Batches, Pixels, Question, chain
from gpupipe.comparison.ratios import Spread, pair_order, ratios

__all__ = ["add_options", "augment", "photographs"]

ROWS = 64
CLOSE = 0.5
"""Mean difference of the pixels of two contestants with equal settings, of 255: levels that are rounded either way."""
BUSY, POLL, IDLE, PATIENCE = 0.002, 0.02, 3, 30.0
"""CPU seconds in `POLL` seconds above which this process works; after `IDLE` polls below it does not, or an error."""


def add_options(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("augment", help="color_jitter, affine, blur and RandAugment beside DALI's operators")
    parser.set_defaults(run=_run)
    parser.add_argument("--only", default="", help=f"questions out of {', '.join(QUESTIONS)}; default: all")
    parser.add_argument("--pairs", type=int, default=9, help="of the two contestants of a question (%(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="CPU seconds of a window, about (%(default)s)")


def _run(options: argparse.Namespace, folder: Path) -> int:
    names = tuple(options.only.split(",")) if options.only else tuple(QUESTIONS)
    path = augment(options.out, names, pairs=options.pairs, seconds=options.seconds, threads=options.threads)
    print(f"written to {path.name}")
    return 0


def photographs(count: int = ROWS) -> Pixels:
    """The middles of drawn photographs with colours, uint8[count,224,224,3]."""
    from gpupipe.comparison.photographs import take

    found: list[Any] = []
    number = 0
    while len(found) < count:
        _, pixels = take(number)
        number += 1
        if pixels.ndim == 3 and min(pixels.shape[:2]) >= SIDE:
            top, left = ((side - SIDE) // 2 for side in pixels.shape[:2])
            found.append(pixels[top : top + SIDE, left : left + SIDE])
    return np.stack(found)


def augment(
    out: Path, names: Sequence[str], *, pairs: int = 9, seconds: float = 1.0, threads: int = 1, images: int = ROWS
) -> Path:
    """Measure, print a table, and write the result file.

    Args:
        out: folder of the result file.
        names: of the questions.
        pairs: of windows of the two contestants.
        seconds: CPU time of a window, about; a window has whole batches.
        threads: of both contestants; torchvision has one.
        images: rows of a batch.

    Raises:
        UnequalWork: a question is unknown, or its contestants with equal settings give different pixels.
    """
    if wrong := [name for name in names if name not in QUESTIONS]:
        raise UnequalWork(f"augment needs questions out of {', '.join(QUESTIONS)}, got {', '.join(wrong)}")
    rows = photographs(images)
    summary: dict[str, dict[str, Any]] = {}
    runs: dict[str, dict[str, list[float]]] = {}
    audits: dict[str, float] = {}
    for name in names:
        question = QUESTIONS[name]
        if question.fixed:
            audits[name] = difference(question, rows, threads)
        runs[name] = took = measure(question, rows, pairs, seconds, threads)
        summary[name] = {
            "gpupipe_ms": asdict(Spread.of(took["gpupipe"])),
            "other_ms": asdict(Spread.of(took["other"])),
            "ratio": asdict(ratios(took["gpupipe"], took["other"])),
            "noise": asdict(ratios(took["gpupipe"], took["gpupipe again"])),
            "other": question.other,
            "goal": question.goal,
            "goal_ms": question.most,
        }
        print(table(name, summary[name], audits.get(name)), flush=True)
    settings = {"pairs": pairs, "seconds": seconds, "threads": threads, "rows": images, "side": SIDE}
    document = {**report.header("augment", settings), "audits": audits, "summary": summary, "cpu_ms": runs}
    return report.write(document, out)


def difference(question: Question, rows: Pixels, threads: int) -> float:
    """The mean difference of the pixels of two contestants that nothing is left to chance for.

    Raises:
        UnequalWork: it is more than `CLOSE`.
    """
    ours = chain(question, rows, threads, fixed=True)(1)
    theirs = question.by_hand(rows, threads, True)(1)
    off = float(np.abs(ours.astype(np.int16) - theirs).mean())
    if off > CLOSE:
        raise UnequalWork(
            f"augment needs equal pixels of gpupipe and {question.other}, got {off:.2f} of 255 between them"
        )
    return off


def measure(question: Question, rows: Pixels, pairs: int, seconds: float, threads: int) -> dict[str, list[float]]:
    """CPU-milliseconds for an image in each window of each contestant."""
    both = {"gpupipe": chain(question, rows, threads), "other": question.by_hand(rows, threads, False)}
    counts = {}
    for name, take in both.items():
        take(2)  # builds, and fills what is computed ahead
        counts[name] = max(1, math.ceil(seconds / window(take, 1)))
    took: dict[str, list[float]] = {"gpupipe": [], "other": [], "gpupipe again": []}
    for number in range(pairs):
        order = ["gpupipe", "other"]
        for name in [*(order[i] for i in pair_order(number)), "gpupipe again"]:
            who = name.removesuffix(" again")
            took[name].append(window(both[who], counts[who]) / counts[who] / len(rows) * 1e3)
    return took


def window(take: Batches, count: int) -> float:
    """CPU seconds of this process for some batches, and for what it then computes ahead in place of them."""
    settle()
    start = process_time()
    take(count)
    settle()
    return process_time() - start


def settle() -> None:
    """Wait until no thread of this process works.

    Raises:
        RuntimeError: one goes on working.
    """
    idle, end, last = 0, monotonic() + PATIENCE, process_time()
    while idle < IDLE:
        sleep(POLL)
        now = process_time()
        idle = idle + 1 if now - last < BUSY else 0
        last = now
        if monotonic() > end:
            raise RuntimeError(f"augment needs threads that rest between batches, got {PATIENCE:.0f} s of work")


def table(name: str, found: Mapping[str, Any], off: float | None) -> str:
    """Lay out one question."""

    def said(key: str) -> str:
        one = found[key]
        return f"{one['median']:.3f} ({one['least']:.3f}-{one['most']:.3f})"

    most = f"   (goal: at most {found['goal_ms']:g})" if found["goal_ms"] is not None else ""
    pixels = "not compared" if off is None else f"{off:.3f} of 255 apart in the mean, with equal settings"
    return "\n".join([
        f"{name}, CPU-ms per image",
        f"  {'gpupipe on DALI-CPU':<34}{said('gpupipe_ms')}{most}",
        f"  {found['other']:<34}{said('other_ms')}",
        f"  {'ratio':<34}{said('ratio')}   (goal: at most {found['goal']:g})",
        f"  {'gpupipe with itself: the noise':<34}{said('noise')}",
        f"  {'pixels':<34}{pixels}",
    ])  # fmt: skip
