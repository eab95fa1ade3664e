"""rounds: one chain on one executor, measured pass by pass, in whichever process this is, and what it delivers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..classes import dataclass
from ..dataset import Dataset
from ..errors import DataError, PlanError
from ..load.iterator import DatasetIterator
from ..load.progress import Epochs
from ..optimize.place.placer import MICRO_BATCH
from ..options import Options
from ..ragged import Ragged
from ..structure import flatten
from ..transform.array import to_host
from .pixels import gap_of, same_images
from .usage.gpu import GpuUse, GpuWatch
from .usage.process import cpu_seconds, forget_peak, peak_bytes

__all__ = ["Delivered", "Round", "Runner", "iterator_of", "unlike"]

Array = npt.NDArray[Any]

PROFILE_SECONDS = 1.0
WAITING_SECONDS = 20.0
"""After which a consumer stops: a slow one would need hours for the images of a pass."""


ROUNDED = 1e-3
"""The largest relative difference of floats, features that executors compute, that counts as rounding."""


@dataclass(frozen=True, slots=True)
class Round:
    """One pass, or as much of it as was asked for.

    Attributes:
        images: delivered.
        batch: rows of the first batch; 1 if they are not batched.
        seconds: that `timed` images took.
        cpu: CPU seconds of the same, of this process and its workers.
        timed: images delivered after the first batch, or after the first group that the executor took if they are not
            batched; all of them if there was no second one.
        first_batch_s: seconds to the first batch.
        peak: resident memory at most, bytes; None if unknown.
        gpu: what was seen of the GPU.
    """

    images: int
    batch: int
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
    """The first rows of a chain on the host: every leaf that holds numbers or bytes.

    Attributes:
        leaves: by the name of the leaf, one array for each row.
    """

    leaves: dict[str, list[Array]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return max(map(len, self.leaves.values()), default=0)

    @property
    def shown(self) -> str | None:
        """The name of the first leaf of images; where none has channels, of the first with two axes."""
        axes = {name: {row.ndim for row in rows if row.dtype.kind in "buif"} for name, rows in self.leaves.items()}
        return next((name for wanted in ({3}, {2}) for name, found in axes.items() if found == wanted), None)

    @property
    def images(self) -> list[Array]:
        """The images of the first leaf that holds any."""
        return self.leaves[self.shown] if self.shown is not None else []

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """The first leaf of integers, int64[N]; empty if there is none."""
        for rows in self.leaves.values():
            if all(row.dtype.kind in "iu" and row.size == 1 for row in rows):
                return np.array([row.item() for row in rows]).astype(np.int64)
        return np.zeros(0, np.int64)

    def arrays(self) -> dict[str, Array]:
        """As arrays with names, for `of_arrays`."""
        return {f"{n} {name}": row for name, rows in self.leaves.items() for n, row in enumerate(rows)}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Array]) -> Delivered:
        """The rows that `arrays` wrote."""
        leaves: dict[str, list[Array]] = {}
        for key in arrays:
            leaves.setdefault(key.partition(" ")[2], []).append(arrays[key])
        return cls(leaves)

    @classmethod
    def joined(cls, parts: Iterable[Delivered], rows: int) -> Delivered:
        """The rows of several elements, `rows` at most."""
        leaves: dict[str, list[Array]] = {}
        for part in parts:
            for name, found in part.leaves.items():
                leaves.setdefault(name, []).extend(found[: max(0, rows - len(leaves.get(name, ())))])
        return cls(leaves)


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
            first, images, batch, before, workers = 0.0, 0, 0, 0, 0.0
            last: Any = None
            with iterator_of(self.dataset) as items:
                for element in items:
                    last, images = element, items.stats().rows
                    if not batch:
                        first, batch = time.perf_counter() - started, images
                    if not before and (batch if batch > 1 else MICRO_BATCH) <= images < self.images:
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
        return Round(images, batch, seconds, cpu, images - before, first, peak_bytes(), watch.use)

    def waiting(self, rate: float) -> float | None:
        """Let a consumer take images at a rate: the share of its time, from 0 to 1, that it waited.

        The consumer sleeps for as long as its work on a batch would take. The wait for the first batch does not count;
        None if there is no other. It stops after `WAITING_SECONDS`, but not before the second batch.
        """
        waited = working = 0.0
        rows = batches = 0
        with iterator_of(self.dataset) as items:
            while rows < self.images and (batches < 2 or waited + working < WAITING_SECONDS):
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
        """The rows of one pass, batch by batch, on the host."""
        rows = 0
        with iterator_of(self.dataset) as items:
            for element in items:
                before, rows = rows, items.stats().rows
                yield _rows_of(element, rows - before)
                if rows >= self.images:
                    return

    def first(self, count: int) -> Delivered:
        """The first rows, `count` at most."""
        return Delivered.joined(replace(self, images=count).batches(), count)


def iterator_of(dataset: Dataset) -> DatasetIterator:
    """An iterator over the epoch of `first()`, which does not count as one: all draw the same."""
    epoch = dataset._peeked_epoch()
    return DatasetIterator(dataset.plan, dataset.options().resolve(), Epochs(range(epoch, epoch + 1)))


def _wait_for(element: Any) -> None:
    """Wait until a batch is computed, which on a GPU may be after it was delivered."""
    for leaf in flatten(element)[0] if element is not None else ():
        if hasattr(leaf, "shape") and len(leaf.shape):
            to_host(leaf[:1])


def _workers(items: DatasetIterator) -> float:
    """CPU seconds of the worker processes so far, which are children that run on."""
    return sum(step.cpu_seconds for step in items.stats().steps if step.processes)


def _rows_of(element: Any, rows: int) -> Delivered:
    """The rows of one element, a batch of `rows` or a single one."""
    values, structure = flatten(element)
    named = {name: _host(leaf) for name, leaf in zip(structure.leaf_names(), values, strict=True)}
    arrays = {name: leaf for name, leaf in named.items() if isinstance(leaf, np.ndarray | Ragged)}
    batched = rows > 1 or any(leaf.ndim == 4 for leaf in arrays.values())
    return Delivered({
        name: [_row(row) for row in (leaf if batched and len(leaf) == rows else [leaf])]
        for name, leaf in arrays.items()
    })  # fmt: skip


def _host(leaf: Any) -> Any:
    """A leaf as an array on the host; what is neither a number nor bytes, as it is."""
    if isinstance(leaf, np.ndarray | Ragged) or hasattr(leaf, "__cuda_array_interface__"):
        return to_host(leaf)
    return np.asarray(leaf) if isinstance(leaf, bytes | int | float | np.generic) else leaf


def _row(row: Any) -> Array:
    """A row as an array; a ragged one, whose own rows are equally long in an image, as a filled one."""
    if isinstance(row, bytes):
        return np.frombuffer(row, np.uint8)
    return row.to_padded() if isinstance(row, Ragged) else np.asarray(row)


def unlike(mine: Delivered, theirs: Delivered, scale: Any) -> str:
    """What in the rows of a pass is other than in those of another, in words; "" if they are the same.

    Args:
        mine: the rows.
        theirs: those of the reference.
        scale: of the first images, see `gap_of`.
    """
    if len(mine.images) != len(theirs.images):
        return f"{len(mine.images)} images in the first batches, not {len(theirs.images)}"
    if not np.array_equal(mine.labels, theirs.labels):
        return "other labels"
    shapes = zip(mine.images, theirs.images, strict=True)
    other = next(((a.shape, b.shape) for a, b in shapes if a.shape != b.shape), None)
    if other is not None:
        return f"images of shape {list(other[0])}, not {list(other[1])}"
    for name, rows in theirs.leaves.items():
        shown = name == theirs.shown
        why = _unlike(mine.leaves.get(name, []), rows, scale if shown else None)
        if why:
            return why if shown else f"{why}, in {name or 'its elements'}"
    return ""


def _unlike(mine: list[Array], theirs: list[Array], scale: Any) -> str:
    """The same of one leaf."""
    if len(mine) != len(theirs):
        return f"{len(mine)} rows, not {len(theirs)}"
    for number, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        if a.shape != b.shape or (b.ndim < 2 and not _same_values(a, b)):
            return f"other values in row {number}"
    if not theirs or theirs[0].ndim not in (2, 3) or theirs[0].dtype.kind not in "buif":
        return ""
    gap = gap_of(mine, theirs, scale)
    return "" if same_images(gap) else f"image {gap.worst} differs by {gap.worst_mean:.3g} {gap.unit} on average"


def _same_values(a: Array, b: Array) -> bool:
    if b.dtype.kind == "f":
        return np.allclose(
            a, b, rtol=ROUNDED, atol=ROUNDED * float(np.abs(b[np.isfinite(b)]).max(initial=0)), equal_nan=True
        )
    return np.array_equal(a, b)
