"""flowers: training on a folder of 3,670 photographs in five classes, as in tutorials: the first epoch and later ones.

Every contestant reads the folder, decodes, resizes to 180x180, shuffles, batches and scales to 0..1; those that can
keep decoded images for later epochs. With augmentation, images are mirrored at random and shifted by up to 18 pixels,
with zeros where nothing was. Resizing is what each library does: Pillow filters, the others interpolate.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.contestants import CONTESTANTS, missing
from benchmarks.equal import UnequalWork, check
from benchmarks.job import Audit, Job, Run
from benchmarks.pairs import spawn
from gpupipe.comparison.ratios import Spread, ratios

__all__ = ["CLASSES", "describe", "flowers", "write_flowers", "write_halves"]

CLASSES: Mapping[str, int] = {"daisy": 633, "dandelion": 898, "roses": 641, "sunflowers": 699, "tulips": 799}
"""The classes of the photographs of flowers that TensorFlow's tutorials load, and how many each has."""
DISTINCT = 367
"""Photographs that are drawn; the others are links to them, as drawing takes longer than what is measured."""
CHAINS = {"plain": "", "augmented": ", augmented"}
EPOCHS = {"first": "first epoch", "later": "later epochs"}
LATER = 2
PROBES, TIMES = 32, 8
REFERENCE = "flowers-gpupipe"


def flowers(
    out: Path, folder: Path, *, contestants: Sequence[str] = (), images: int = 3670, rounds: int = 9, threads: int = 2
) -> Path:
    """Measure every contestant once a round, every second round in the other order; print a table.

    Args:
        out: folder of the result file.
        folder: for temporary files.
        contestants: names; empty means all. gpupipe, the reference, always takes part.
        images: fewer photographs make it shorter.
        rounds: of all contestants.
        threads: or worker processes of a contestant.

    Raises:
        UnequalWork: an unknown name, or contestants that do not deliver the same.
        ContestantFailed: one ends without a report.
    """
    known = [name for name, one in CONTESTANTS.items() if one.work == "flowers"]
    if wrong := [name for name in contestants if name not in known]:
        raise UnequalWork(f"flowers needs contestants out of {', '.join(known)}, got {', '.join(wrong)}")
    asked = [name for name in known if name in (*(contestants or known), REFERENCE)]
    absent = {name: why for name in asked if (why := missing(CONTESTANTS[name]))}
    names = [name for name in asked if name not in absent]
    photographs, halves = folder / "flowers", folder / "halves"
    write_flowers(photographs, images)
    write_halves(halves)
    job = Job(REFERENCE, (str(halves),), "flowers-audit", batch=32, batches=TIMES, threads=threads)
    audits = [_audit(replace(job, contestant=name, chain=chain)) for chain in CHAINS for name in names]
    for n, _ in enumerate(CHAINS):
        check(audits[n * len(names) : (n + 1) * len(names)], {str(PROBES * TIMES): len(CLASSES)})
    job = replace(job, mode="flowers", files=(str(photographs),), batches=LATER, timeout=1200.0)
    runs: dict[str, dict[str, list[Run]]] = {}
    for number in range(rounds):
        jobs = [replace(job, contestant=name, chain=chain, seed=number) for chain in CHAINS for name in names]
        jobs += [replace(job, chain=chain, seed=rounds + number) for chain in CHAINS]
        for one in jobs if number % 2 == 0 else jobs[::-1]:
            who = "noise" if one.seed >= rounds else one.contestant
            for epoch, run in _measured(one).items():
                runs.setdefault(f"{EPOCHS[epoch]}{CHAINS[one.chain]}", {}).setdefault(who, []).append(run)
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    summary = {row: _summary(found) for row, found in runs.items()}
    print(table(summary, absent))
    document = {
        **report.header("flowers", {"images": images, "rounds": rounds, "threads": threads, "later_epochs": LATER}),
        "reference": REFERENCE,
        "not_measured": absent,
        "audits": [asdict(one) for one in audits],
        "summary": {
            row: {who: {key: asdict(value) for key, value in one.items()} for who, one in found.items()}
            for row, found in summary.items()
        },
        "runs": {row: {who: [asdict(run) for run in one] for who, one in found.items()} for row, found in runs.items()},
    }
    return report.write(document, out)


def _audit(job: Job) -> Audit:
    found, _ = spawn(job)
    return Audit(**{**found, "shape": tuple(found["shape"])})


def _measured(job: Job) -> dict[str, Run]:
    found, peak = spawn(job)
    runs = {epoch: Run(**{**found[epoch], "shape": tuple(found[epoch]["shape"])}) for epoch in EPOCHS}
    return {epoch: replace(run, peak_rss_mb=max(run.peak_rss_mb, peak / 1e6)) for epoch, run in runs.items()}


def _summary(found: Mapping[str, Sequence[Run]]) -> dict[str, dict[str, Spread]]:
    """Figures of each contestant in a row, and CPU time and rate relative to the reference, round by round."""
    base = found[REFERENCE]
    return {
        who: {
            "cpu_ms_per_image": Spread.of([run.cpu_ms for run in runs]),
            "images_per_s": Spread.of([run.rate for run in runs]),
            "peak_rss_mb": Spread.of([run.peak_rss_mb for run in runs]),
            "cpu_ratio": ratios([run.cpu_ms for run in runs], [run.cpu_ms for run in base]),
            "rate_ratio": ratios([run.rate for run in runs], [run.rate for run in base]),
        }
        for who, runs in found.items()
    }


def table(summary: Mapping[str, Mapping[str, Mapping[str, Spread]]], absent: Mapping[str, str]) -> str:
    """Lay out all rows, and in each who is ahead of gpupipe."""
    lines = [f"{'':<62}{'CPU-ms/image':>14}{'images/s':>10}{'peak MB':>9}  CPU ratio            rate ratio"]
    for row, found in summary.items():
        for who, one in found.items():
            label = "gpupipe once more: the noise" if who == "noise" else CONTESTANTS[who].label
            lines.append(
                f"{row:<26}{label:<36}{one['cpu_ms_per_image'].median:>14.2f}{one['images_per_s'].median:>10,.0f}"
                f"{one['peak_rss_mb'].median:>9,.0f}  {one['cpu_ratio']!s:<20} {one['rate_ratio']}"
            )
    lines += [f"{CONTESTANTS[name].label}: {why}" for name, why in absent.items()]
    for row, found in summary.items():
        ahead = [
            CONTESTANTS[who].label
            for who, one in found.items()
            if who not in (REFERENCE, "noise") and one["rate_ratio"].median > 1 and not who.startswith(REFERENCE)
        ]
        lines.append(
            f"goal: gpupipe ahead in images/s, {row}: {'met' if not ahead else 'NOT met: ' + ', '.join(ahead)}"
        )
    return "\n".join(lines)


def write_flowers(folder: Path, images: int) -> None:
    """Draw photographs of 320x240 into a folder for each class, in the shares of `CLASSES`."""
    from gpupipe.comparison.photographs import encode, photograph
    from gpupipe.comparison.scene import KINDS

    drawn: list[Path] = []
    whole, number = sum(CLASSES.values()), 0
    for kind, (name, count) in enumerate(CLASSES.items()):
        (folder / name).mkdir(parents=True)
        for _ in range(max(1, round(count * images / whole))):
            path = folder / name / f"{number:05}.jpg"
            if number < DISTINCT:
                side = (320, 240) if number % 4 == 0 else (240, 320)  # a quarter is portrait
                path.write_bytes(encode(photograph(np.random.default_rng(number), *side, kind % len(KINDS)), 95))
                drawn.append(path)
            else:
                os.link(drawn[number % DISTINCT], path)
            number += 1


def write_halves(folder: Path) -> None:
    """Write `PROBES` images for each class whose left half is darker than the right one: a flip and a shift show."""
    from gpupipe.comparison.photographs import encode

    pixels = np.full((240, 320, 3), 100, np.uint8)
    pixels[:, 160:] = 200
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
        for number in range(PROBES):
            (folder / name / f"{number}.jpg").write_bytes(encode(pixels))


def describe(contestant: str, epochs: Iterable[Any]) -> Audit:
    """Describe epochs over the images of `write_halves`: labels, level, share of mirrored ones, mean shift.

    Args:
        contestant: its name.
        epochs: iterators of (float32[N,180,180,3] in 0..1, labels[N]).
    """
    labels: dict[int, int] = {}
    mirrored, shifts, levels = [], [], []
    shape: tuple[int, ...] = ()  # of a whole batch
    dtype = ""
    for images, numbers in (batch for epoch in epochs for batch in epoch):
        images = np.asarray(images)
        shape, dtype = max(shape, images.shape), images.dtype.name
        for label in np.asarray(numbers).astype(int).tolist():
            labels[label] = labels.get(label, 0) + 1
        for image in images:
            inside = image.max(2) > 0.2  # the zeros of a shift are not
            levels.append(image[inside].mean() * 255)
            row, column = image[90, :, 0], ~inside[:, 90]
            mirrored.append(row[45] > row[135])
            shifts += [column.sum(), (~inside[90]).sum()]
    counts: dict[str, int] = {}
    for times in labels.values():
        counts[str(times)] = counts.get(str(times), 0) + 1
    figures = {"mirrored": np.mean(mirrored), "shift": np.mean(shifts), "level": np.mean(levels)}
    return Audit(contestant, shape, dtype, "NHWC", counts, {name: float(value) for name, value in figures.items()})
