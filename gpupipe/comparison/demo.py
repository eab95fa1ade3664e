"""demo: run the README's chain on every executor of this machine, compare cost and pixels, save a contact sheet."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from gpupipe.comparison.chain import training_chain
from gpupipe.comparison.comparison import Comparison
from gpupipe.comparison.contest import Request, contest
from gpupipe.comparison.contestants import EXECUTORS, Alone, Contestant, Executor, check_any_runs
from gpupipe.comparison.measure import Job
from gpupipe.comparison.photographs import write_shards
from gpupipe.comparison.rounds import Runner
from gpupipe.comparison.sheet import contact_sheet, save_png, to_uint8
from gpupipe.comparison.source import Source, find_source
from gpupipe.comparison.terminal import cost_rows, laid_out
from gpupipe.errors import PlanError
from gpupipe.extract.storage.output import check_output
from gpupipe.extract.storage.replacing import named_errors
from gpupipe.progress import Progress

__all__ = ["run_demo"]

BATCH = 32
COMPARED = 64  # how many of the first images are compared pixel by pixel
ON_SHEET = 48


def run_demo(
    data: str | None = None,
    out: Path = Path("contact-sheet.png"),
    images: int = 400,
    size: int = 224,
    executors: Sequence[str] = (),
) -> int:
    """Run the demo; its table goes to stdout, its progress to stderr.

    Args:
        data: TFRecord files, images, tar archives or Parquet files, see `find_source`; None draws photographs.
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
    check_any_runs(executors)
    with tempfile.TemporaryDirectory(prefix="gpupipe-demo-") as name, Progress() as progress, ExitStack() as stack:
        folder = Path(name)
        source = _draw(folder, images, progress) if data is None else find_source(data, images)
        check_output("--out", out, "PNG", source.paths)
        batch = min(BATCH, images, source.at_least)
        dataset = training_chain(source, images, batch, size)

        def enter(executor: Executor, _: Runner) -> Contestant:
            job = Job(executor.device, executor.backend, images, source, batch, size)
            return stack.enter_context(Alone(job, folder))

        request = Request(
            dataset, source.title, images, COMPARED, steps=False, limits=False, alone=True, scale=ops.IMAGENET_STD
        )
        found = contest(request, executors, enter, progress)
        measured = [cost.key for cost in found.costs if cost.measured]
        first = next(executor for executor in EXECUTORS if executor.key in measured)
        shown = Runner.on(dataset, first.device, first.backend, images).first(ON_SHEET).images
    for cost in found.costs:
        if cost.failed:
            print(f"{cost.title} failed: {cost.reason}", file=sys.stderr)
    print(_heading(found, size), laid_out(cost_rows(found), left=1), sep="\n\n")
    save_png(out, contact_sheet(to_uint8(np.stack(shown), ops.IMAGENET_MEAN, ops.IMAGENET_STD)))
    print(f"\nsaved {out}: {len(shown)} augmented images of {first.title}")
    return _verdict(found)


def _check(out: Path, images: int, size: int) -> None:
    if images < 2:
        raise PlanError(f"--images needs 2 or more, got {images}")
    if size < 8:
        raise PlanError(f"--size needs 8 pixels or more, got {size}")
    check_output("--out", out, "PNG")


def _draw(folder: Path, images: int, progress: Progress) -> Source:
    progress.start(f"drawing {images} photographs")
    with named_errors(folder):
        shards = write_shards(folder, images, min(8, images), progress=lambda done: progress.update(done, images))
    megabytes = sum(path.stat().st_size for path in shards) / 1e6
    progress.finish(f"{megabytes:.0f} MB in {len(shards)} TFRecord shards")
    return Source("photographs drawn for this run", "TFRecord files", list(map(str, shards)), at_least=images)


def _heading(found: Comparison, size: int) -> str:
    return (
        f"{found.data}: {found.images} images a pass, cropped to {size}x{size}, batches of {found.batch}\n"
        f"{', '.join(found.machine.values())}; medians over {found.rounds} passes, each executor alone in a process"
    )


def _verdict(found: Comparison) -> int:
    """Print whether the executors delivered the same elements with the same crops and flips; return the exit status."""
    for finding in found.findings:
        if finding.kind == "delivered":
            print(finding.text + (": please report this" if finding.bad else ""))
    return 0 if found.equal else 1
