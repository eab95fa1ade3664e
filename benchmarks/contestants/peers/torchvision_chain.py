"""torchvision_chain: torch's DataLoader with torchvision's `decode_jpeg` and transforms v2 on tensors.

`torchvision.io` needs the build of torch that its wheel was made for; beside another one it does not load, and the
contestant is listed with that reason.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.contestants.peers.source import Places
from benchmarks.job import IMAGENET_MEAN, IMAGENET_STD, SIZE, Job

__all__ = ["Photographs", "batches"]


class Photographs:
    """A map-style dataset: index -> (float32[3,224,224], label)."""

    def __init__(
        self, job: Job, decode: Callable[[Any], Any] | None = None, steps: Callable[[Any], list[Any]] | None = None
    ) -> None:
        torch: Any = importlib.import_module("torch")
        v2: Any = importlib.import_module("torchvision.transforms.v2")
        self.torch, self.places = torch, Places(job)
        self.decode = decode or _decoder()
        self.transform = v2.Compose([
            *(cropped if steps is None else steps)(v2),
            v2.ToDtype(torch.float32),
            v2.Normalize(IMAGENET_MEAN, IMAGENET_STD),
        ])  # fmt: skip

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, i: int) -> tuple[Any, int]:
        encoded, label = self.places[i]
        data = self.torch.from_numpy(np.frombuffer(bytearray(encoded), np.uint8))  # torch wants writable memory
        return self.transform(self.decode(data)), label


def cropped(v2: Any) -> list[Any]:
    """The steps of the chain that come before the normalisation."""
    return [v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip()]


def _decoder() -> Callable[[Any], Any]:
    """torchvision's decoder of a ``uint8[n]`` to ``uint8[3,h,w]``.

    Raises:
        RuntimeError: torchvision's compiled part does not load.
    """
    io: Any = importlib.import_module("torchvision.io")

    def decode(data: Any) -> Any:
        return io.decode_jpeg(data, mode=io.ImageReadMode.RGB)

    return decode


def batches(job: Job, decode: Callable[[Any], Any] | None = None) -> Iterator[tuple[Any, Any]]:
    """Yield one pass of (images, labels) as torch tensors, made by `job.threads` worker processes.

    Args:
        job: the files and the sizes.
        decode: of tests, in place of torchvision's.
    """
    torch: Any = importlib.import_module("torch")

    def collate(rows: list[tuple[Any, int]]) -> tuple[Any, Any]:
        # The one copy that every collate makes; in the other contestants' order of axes it is as fast.
        return torch.stack([image.permute(1, 2, 0) for image, _ in rows]), torch.tensor([label for _, label in rows])

    yield from torch.utils.data.DataLoader(
        Photographs(job, decode),
        batch_size=job.batch,
        shuffle=True,
        drop_last=True,
        num_workers=job.threads,
        collate_fn=collate,
        generator=torch.Generator().manual_seed(job.seed),
    )
