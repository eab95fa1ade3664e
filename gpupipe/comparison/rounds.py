"""rounds: one chain on one executor, measured pass by pass, in whichever process this is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..dataset import Dataset
from ..errors import DataError, PlanError
from ..load.iterator import DatasetIterator
from ..load.progress import Epochs
from ..optimize.place.placer import MICRO_BATCH
from ..options import Options
from ..structure import flatten
from ..transform.array import to_host
from .usage.gpu import GpuUse, GpuWatch
from .usage.process import cpu_seconds, forget_peak, peak_bytes

__all__ = ["Delivered", "Round", "Runner", "images_and_labels", "iterator_of"]

PROFILE_SECONDS = 1.0
CONSUMER_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Round:
    """One pass, or as much of it as was asked for.

    Attributes:
        images: delivered.
        batches: delivered.
        seconds: that `timed` images took.
        cpu: CPU seconds of the same, of this process and its workers.
        timed: images delivered after the first batch, or after the first group that the executor took if they are not
            batched; all of them if there was no second one.
        first_batch_s: seconds to the first batch.
        peak: resident memory at most, bytes; None if unknown.
        gpu: what was seen of the GPU.
    """

    images: int
    batches: int
    seconds: float
    cpu: float
    timed: int
    first_batch_s: float
    peak: int | None
    gpu: GpuUse

    def json(self) -> dict[str, Any]:
        """As plain data, for `of_json`."""
        return asdict(self)

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Round:
        """The round that `json` wrote."""
        return cls(**{**data, "gpu": GpuUse(**data["gpu"])})


@dataclass(frozen=True, slots=True)
class Delivered:
    """The first images of a chain, and the labels beside them.

    Attributes:
        images: one array for each image, as delivered.
        labels: int64[N]; empty if the elements have none.
    """

    images: list[npt.NDArray[Any]]
    labels: npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs a chain on one executor.

    Attributes:
        dataset: the chain, with the options that choose the executor.
        images: a pass ends after so many.
    """

    dataset: Dataset
    images: int

    @classmethod
    def on(cls, dataset: Dataset, device: str, backend: Any, images: int) -> Runner:
        """Run a chain on the executor of these options; its other options stay."""
        return cls(dataset.with_options(Options(device=device, backend=backend)), images)

    def round(self, said: Callable[[int], None] = lambda images: None) -> Round:
        """Run one pass.

        Args:
            said: called with the images delivered so far.

        Raises:
            DataError: the chain has no element.
        """
        forget_peak()
        with GpuWatch() as watch:
            started = since = time.perf_counter()
            begun = used = cpu_seconds()
            first, images, batches, before, group, workers = 0.0, 0, 0, 0, 0, 0.0
            last: Any = None
            with iterator_of(self.dataset) as items:
                for element in items:
                    last, batches = element, batches + 1
                    images = items.stats().rows
                    if batches == 1:
                        first = time.perf_counter() - started
                        group = images if images > 1 else MICRO_BATCH
                    if not before and group <= images < self.images:
                        since, used, before = time.perf_counter(), cpu_seconds(), images
                        workers = _workers(items)
                    said(images)
                    if images >= self.images:
                        break
                _wait_for(last)
                if images < 2 * before or not before:  # there was one group only: all of the pass is measured
                    since, used, before, workers = started, begun, 0, 0.0
                seconds, cpu = time.perf_counter() - since, cpu_seconds() - used + _workers(items) - workers
        if not images:
            raise DataError("compare needs a dataset with elements, got an empty one")
        return Round(images, batches, seconds, cpu, images - before, first, peak_bytes(), watch.use)

    def waiting(self, rate: float) -> float | None:
        """Let a consumer take images at a rate: the share of its time, from 0 to 1, that it waited.

        The consumer sleeps for as long as its work on a batch would take, for `CONSUMER_SECONDS` and two batches at
        least. The wait for the first batch does not count; None if there is no other.
        """
        waited = working = 0.0
        rows = batches = 0
        with iterator_of(self.dataset) as items:
            while rows < self.images and (batches < 2 or waited + working < CONSUMER_SECONDS):
                asked = time.perf_counter()
                element = next(items, None)
                got = time.perf_counter()
                if element is None:
                    break
                now = items.stats().rows
                waited += got - asked if rows else 0.0
                until = got + (now - rows) / rate
                time.sleep(max(0.0, until - time.perf_counter()))
                working += time.perf_counter() - got
                rows, batches = now, batches + 1
        return waited / (waited + working) if batches > 1 else None

    def bottleneck(self) -> tuple[str, str]:
        """What limits the rate, and what would raise it, in words."""
        try:
            profile = self.dataset.profile(1000, warmup=1, seconds=PROFILE_SECONDS)
        except PlanError:  # it has one batch only
            profile = self.dataset.repeat().profile(1000, warmup=1, seconds=PROFILE_SECONDS)
        found = profile.verdict
        lines = str(found).splitlines()
        return lines[0], "" if found.mend is None else str(found.mend)

    def batches(self) -> Iterator[Delivered]:
        """The images and labels of one pass, batch by batch, on the host."""
        rows = 0
        with iterator_of(self.dataset) as items:
            for element in items:
                yield images_and_labels(element)
                rows = items.stats().rows
                if rows >= self.images:
                    return

    def first(self, count: int) -> Delivered:
        """The first images, `count` at most."""
        images: list[npt.NDArray[Any]] = []
        labels: list[npt.NDArray[Any]] = []
        for batch in replace(self, images=count).batches():
            images.extend(batch.images)
            labels.append(batch.labels)
        joined = np.concatenate(labels) if labels else np.zeros(0, np.int64)
        return Delivered(images[:count], joined[:count])


def iterator_of(dataset: Dataset) -> DatasetIterator:
    """An iterator over the epoch of `first()`, which does not count as one: all draw the same."""
    epoch = dataset._peeked_epoch()
    return DatasetIterator(dataset.plan, dataset.options().resolve(), Epochs(range(epoch, epoch + 1)))


def images_and_labels(element: Any) -> Delivered:
    """The images in an element, those of its first leaf that holds any, and the integers beside them."""
    leaves = [_host(leaf) for leaf in flatten(element)[0]]
    images: list[npt.NDArray[Any]] = []
    for leaf in leaves:
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "buif" and leaf.ndim in (3, 4):
            images = list(leaf) if leaf.ndim == 4 else [leaf]
            break
    for leaf in leaves:
        if isinstance(leaf, np.ndarray | np.integer) and leaf.dtype.kind in "iu" and np.ndim(leaf) <= 1:
            return Delivered(images, np.atleast_1d(leaf).astype(np.int64))
    return Delivered(images, np.zeros(0, np.int64))


def _host(leaf: Any) -> Any:
    return to_host(leaf) if hasattr(leaf, "shape") else leaf


def _wait_for(element: Any) -> None:
    """Wait until a batch is computed, which on a GPU may be after it was delivered."""
    for leaf in flatten(element)[0] if element is not None else ():
        if hasattr(leaf, "shape") and len(leaf.shape):
            _host(leaf[:1])


def _workers(items: DatasetIterator) -> float:
    """CPU seconds of the worker processes so far, which are children that run on."""
    return sum(step.cpu_seconds for step in items.stats().steps if step.processes)
