"""cifar_torch: images in memory with PyTorch's DataLoader and tensors.

Without worker processes one thread is the cheapest: with two, small operations wait for each other.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.cifar_data import MEAN, PAD, SIDE, STD, data
from benchmarks.job import Job

__all__ = ["passes"]

LINE = SIDE + 2 * PAD


class Images:
    """A map-style dataset: index -> (float32[32,32,3], label)."""

    def __init__(self, job: Job) -> None:
        self.torch: Any = importlib.import_module("torch")
        self.images, self.labels = (self.torch.from_numpy(array) for array in data(job))
        self.mean, self.std = self.torch.tensor(MEAN), self.torch.tensor(STD)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[Any, Any]:
        torch = self.torch
        padded = torch.zeros((LINE, LINE, 3), dtype=torch.uint8)
        padded[PAD : PAD + SIDE, PAD : PAD + SIDE] = self.images[i]
        y, x = torch.randint(0, 2 * PAD + 1, (2,)).tolist()
        image = padded[y : y + SIDE, x : x + SIDE]
        if torch.rand(()) < 0.5:
            image = image.flip(1)
        return (image - self.mean).div_(self.std), self.labels[i]


class Batches(Images):
    """The same with whole batches: windows are views by strides, of which one for each image is copied."""

    def __getitems__(self, indices: list[int]) -> tuple[Any, Any]:
        torch, count = self.torch, len(indices)
        rows = torch.tensor(indices)
        padded = torch.zeros((count, LINE, LINE, 3), dtype=torch.uint8)
        padded[:, PAD : PAD + SIDE, PAD : PAD + SIDE] = self.images[rows]
        room, line = 2 * PAD + 1, 3 * LINE
        windows = padded.as_strided((count, room, room, SIDE, 3 * SIDE), (line * LINE, line, 3, line, 1))
        y, x = torch.randint(0, room, (2, count))
        images = windows[torch.arange(count), y, x].view(count, SIDE, SIDE, 3)
        mirrored = torch.rand(count) < 0.5
        images[mirrored] = images[mirrored].flip(2)
        return (images - self.mean).div_(self.std), self.labels[rows]


def as_it_is(batch: Any) -> Any:
    """Return a batch that is made already."""
    return batch


def passes(job: Job, batched: bool, workers: bool) -> Callable[[], Iterator[tuple[Any, Any]]]:
    """Make the loader; each call of the result starts an epoch of float32[N,32,32,3] and int64[N].

    Args:
        batched: whether whole batches are augmented together.
        workers: whether `job.threads` processes do it.
    """
    torch: Any = importlib.import_module("torch")
    torch.manual_seed(job.seed)
    if not workers:
        torch.set_num_threads(1)
    loader: Any = torch.utils.data.DataLoader(
        Batches(job) if batched else Images(job), batch_size=job.batch, shuffle=True, drop_last=True,
        num_workers=job.threads if workers else 0, persistent_workers=workers,
        collate_fn=as_it_is if batched else None,
    )  # fmt: skip
    return lambda: iter(loader)
