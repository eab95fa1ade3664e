"""contest_of: executors compared on data or a dataset named on the command line, each in a process of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from gpupipe.comparison.chain import training_chain
from gpupipe.comparison.compare import check_executors, check_prices, check_rate
from gpupipe.comparison.comparison import Comparison
from gpupipe.comparison.contest import Request, contest
from gpupipe.comparison.contestants import Alone, Contestant, Executor, check_any_runs
from gpupipe.comparison.measure import Job, serve
from gpupipe.comparison.page.write import check_page
from gpupipe.comparison.rounds import Runner
from gpupipe.comparison.source import find_source
from gpupipe.errors import PlanError
from gpupipe.extract.storage.output import check_output
from gpupipe.ops import IMAGENET_STD
from gpupipe.progress import Progress
from gpupipe.tools.users_file import find_dataset, names_a_dataset, stdout_on_stderr

__all__ = ["contest_of", "main"]

BATCH = 32

BATCHES = 4
"""Of a pass over fewer images than a batch has."""


def contest_of(
    data: str,
    *,
    executors: Sequence[str] = (),
    images: int = 400,
    size: int = 224,
    compared: int = 64,
    steps: bool = True,
    rate: float | None = None,
    prices: Mapping[str, float] | None = None,
    out: Path | None = None,
) -> Comparison:
    """Compare executors.

    Args:
        data: TFRecord files, images, tar archives or Parquet files, see `find_source`, on which the README's chain
            runs; or a dataset, see `find_dataset`.
        executors: keys; empty for all.
        images: of a pass at most.
        size: side of the crop, for data.
        compared: images whose pixels are compared.
        steps: whether to compare step by step.
        rate: images/s of a consumer.
        prices: see `gpupipe.compare`.
        out: where the page will be saved, checked before anything is measured; None without one.

    Raises:
        PlanError: an argument is wrong; nothing has been measured.
        MissingDependencyError: `out` is given and jinja2 is not installed; nothing has been measured.
        GpupipeError: no executor could be measured.
    """
    _check(images, size, compared, out)
    keys = check_executors(executors)
    check_any_runs(keys)
    request, job = _request(data, images, size)
    request = replace(
        request, compared=compared, steps=steps, rate=check_rate(rate), prices=check_prices(prices or {}), alone=True
    )
    module = "gpupipe.tools.contest_of" if job.dataset else "gpupipe.comparison.measure"
    with tempfile.TemporaryDirectory(prefix="gpupipe-compare-") as folder, Progress() as progress, ExitStack() as stack:
        stack.enter_context(stdout_on_stderr())

        def enter(executor: Executor, _: Runner) -> Contestant:
            own = replace(job, device=executor.device, backend=executor.backend)
            return stack.enter_context(Alone(own, Path(folder), module))

        return contest(request, keys, enter, progress)


def _request(data: str, images: int, size: int) -> tuple[Request, Job]:
    """The chain in this process, and the job of the others."""
    if names_a_dataset(data):
        dataset, job = find_dataset(data), Job("cpu", "numpy", images, dataset=data)
        return Request(dataset, data, images), job
    source = find_source(data, images)
    most = min(images, source.at_least)
    batch = min(BATCH, most if most >= BATCH else max(1, most // BATCHES))
    job = Job("cpu", "numpy", images, source, batch, size)
    return Request(training_chain(source, images, batch, size), source.title, images, scale=IMAGENET_STD), job


def _check(images: int, size: int, compared: int, out: Path | None) -> None:
    for name, value, least in (("images", images, 2), ("size", size, 8), ("compared", compared, 1)):
        if value < least:
            raise PlanError(f"--{name} needs {least} or more, got {value}")
    if out is not None:
        check_output("--html", out, "HTML")
        check_page()


def main() -> int:
    """Serve the job that stdin begins with, over the dataset that it names."""
    job = Job.read()
    return serve(find_dataset(job.dataset), job)
