"""uncropped_torchvision: whole images to one size by torchvision's decoder and transforms, see `uncropped_gpupipe`.

`torchvision.io` needs the build of torch that its wheel was made for; beside another one it does not load, and the
contestant is listed with that reason.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.contestants.peers.source import Places
from benchmarks.contestants.peers.torchvision_chain import decoder
from benchmarks.contestants.uncropped_gpupipe import Form
from benchmarks.job import IMAGENET_MEAN, IMAGENET_STD, SIDE, SIZE, Job

__all__ = ["batches"]


class Photographs:
    """A map-style dataset: index -> (float32[3,224,224], label)."""

    def __init__(self, job: Job, form: Form) -> None:
        torch: Any = importlib.import_module("torch")
        v2: Any = importlib.import_module("torchvision.transforms.v2")
        self.torch, self.places, self.decode = torch, Places(job), decoder()
        to_size = [v2.Resize(SIDE), v2.CenterCrop(SIZE)] if form == "center" else [v2.Resize((SIZE, SIZE))]
        self.transform = v2.Compose([*to_size, v2.ToDtype(torch.float32), v2.Normalize(IMAGENET_MEAN, IMAGENET_STD)])

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, i: int) -> tuple[Any, int]:
        encoded, label = self.places[i]
        data = self.torch.from_numpy(np.frombuffer(bytearray(encoded), np.uint8))  # torch wants writable memory
        return self.transform(self.decode(data)), label


def batches(job: Job, form: Form) -> Iterator[tuple[Any, Any]]:
    """Yield one pass of (images, labels) as torch tensors, made by `job.threads` worker processes."""
    torch: Any = importlib.import_module("torch")
    yield from torch.utils.data.DataLoader(
        Photographs(job, form), batch_size=job.batch, drop_last=True, num_workers=job.threads
    )
