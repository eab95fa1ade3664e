"""demo: run the README's chain on every executor of this machine, compare cost and pixels, save a contact sheet."""

from __future__ import annotations

import glob
import platform
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpupipe.comparison.contestants import EXECUTORS, Executor, run_alone
from gpupipe.comparison.measure import MAX_PASSES, Job
from gpupipe.comparison.photographs import write_shards
from gpupipe.comparison.pixels import compare_pixels
from gpupipe.comparison.report import Row, table
from gpupipe.comparison.sheet import contact_sheet, save_png, to_uint8
from gpupipe.comparison.source import Source, find_source
from gpupipe.errors import GpupipeError, PlanError
from gpupipe.options import cpu_count
from gpupipe.progress import Progress

__all__ = ["run_demo"]

BATCH = 32
KEPT_BATCHES = 2  # how many of the first batches are compared pixel by pixel
ON_SHEET = 48

Batches: TypeAlias = Mapping[str, npt.NDArray[Any]]


def run_demo(
    data: str | None = None,
    out: Path = Path("contact-sheet.png"),
    images: int = 400,
    size: int = 224,
    executors: Sequence[str] = (),
) -> int:
    """Run the demo; its table goes to stdout, its progress to stderr.

    Args:
        data: TFRecord files or a folder of class directories, see `find_source`; None draws photographs.
        out: the contact sheet to write, a PNG.
        images: how many images to draw, or to use of `data` at most; >= 2.
        size: pixels per side after the crop, >= 8.
        executors: keys of the `EXECUTORS` to run; empty runs all.

    Returns:
        0, or 1 if an executor failed or the executors disagree.

    Raises:
        PlanError: an argument is wrong; nothing has been measured.
        GpupipeError: no executor could be measured.
    """
    from gpupipe import ops

    _check(out, images, size)
    with tempfile.TemporaryDirectory(prefix="gpupipe-demo-") as name, Progress() as progress:
        folder = Path(name)
        source = _draw(folder, images, progress) if data is None else find_source(data, images)
        rows, kept = _measure(source, folder, images, size, executors, progress)
    for row in rows:
        if row.failed:
            print(f"{row.executor.title} failed: {row.reason}", file=sys.stderr)
    if not kept:
        raise GpupipeError(
            "no executor could be measured: " + "; ".join(f"{r.executor.title}: {r.reason}" for r in rows)
        )

    first, reference = next(iter(kept)), list(kept)[-1]
    rows = [_compared(row, reference, kept, ops.IMAGENET_STD) for row in rows]
    print(_heading(source, rows, size), table(rows, reference.title), sep="\n\n")
    shown = to_uint8(kept[first]["images"][:ON_SHEET], ops.IMAGENET_MEAN, ops.IMAGENET_STD)
    save_png(out, contact_sheet(shown))
    print(f"\nsaved {out}: {len(shown)} augmented images of {first.title}")
    return _verdict(rows, kept, reference.title)


def _check(out: Path, images: int, size: int) -> None:
    if images < 2:
        raise PlanError(f"--images needs 2 or more, got {images}")
    if size < 8:
        raise PlanError(f"--size needs 8 pixels or more, got {size}")
    if out.is_dir():
        raise PlanError(f"--out needs the name of a PNG file, got the folder {str(out)!r}")
    if not out.parent.is_dir():
        raise PlanError(f"--out needs an existing folder, got {str(out)!r}; make {str(out.parent)!r} first")


def _draw(folder: Path, images: int, progress: Progress) -> Source:
    progress.start(f"drawing {images} photographs")
    shards = write_shards(folder, images, min(8, images), progress=lambda done: progress.update(done, images))
    megabytes = sum(path.stat().st_size for path in shards) / 1e6
    progress.finish(f"{megabytes:.0f} MB in {len(shards)} TFRecord shards")
    return Source("photographs drawn for this run", [glob.escape(str(folder)) + "/photos-*.tfrecord"], at_least=images)


def _measure(
    source: Source, folder: Path, images: int, size: int, keys: Sequence[str], progress: Progress
) -> tuple[list[Row], dict[Executor, Batches]]:
    """Run the executors one after another; return their rows, and the first batches of those that ran."""
    rows: list[Row] = []
    kept: dict[Executor, Batches] = {}

    def show(message: dict[str, Any]) -> None:
        if "images" in message:
            progress.update(message["images"], images, "images to warm up")
        elif "passes" in message:
            progress.update(message["passes"], MAX_PASSES, "passes at most")

    for executor in EXECUTORS:
        if keys and executor.key not in keys:
            continue
        if missing := executor.missing():
            rows.append(Row(executor, reason=missing))
            continue
        file = folder / f"{executor.key}.npz"
        batch = min(BATCH, images, source.at_least)
        progress.start(f"running {executor.title}")
        try:
            job = Job(source, executor.device, executor.backend, images, batch, size, KEPT_BATCHES, str(file))
            rows.append(Row(executor, run_alone(job, folder, show)))
            with np.load(file) as arrays:
                kept[executor] = {name: arrays[name] for name in ("images", "labels")}
            progress.finish()
        except GpupipeError as error:
            rows.append(Row(executor, reason=str(error), failed=True))
            progress.finish("failed")
    return rows, kept


def _compared(row: Row, reference: Executor, kept: Mapping[Executor, Batches], std: Any) -> Row:
    if row.executor not in kept or row.executor == reference:
        return row
    images, others = kept[row.executor]["images"], kept[reference]["images"]
    return row if len(images) != len(others) else replace(row, difference=compare_pixels(images, others, std))


def _heading(source: Source, rows: Sequence[Row], size: int) -> str:
    from gpupipe import __version__

    figures = next(row.figures for row in rows if row.figures is not None)
    batch = min(BATCH, figures.images)
    return (
        f"{source.name}: {figures.images} images a pass, cropped to {size}x{size}, batches of {batch}\n"
        f"gpupipe {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}, "
        f"{cpu_count()} CPUs; medians over whole passes, each executor alone in a process"
    )


def _verdict(rows: Sequence[Row], kept: Mapping[Executor, Batches], reference: str) -> int:
    """Print whether the executors delivered the same elements with the same crops and flips; return the exit status."""
    labels = [batches["labels"] for batches in kept.values()]
    same = all(np.array_equal(labels[0], other) for other in labels[1:])
    same &= all(row.difference.same_crops for row in rows if row.difference is not None)
    if len(kept) > 1:
        agree = "have the same labels, crops and flips on every executor"
        differ = f"DIFFER from those of {reference} in label, crop or flip: please report this"
        print(f"the first {len(labels[0])} images {agree if same else differ}")
    return 0 if same and not any(row.failed for row in rows) else 1
