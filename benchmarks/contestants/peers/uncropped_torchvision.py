"""uncropped_torchvision: whole images to one size by torchvision's decoder and transforms, see `uncropped_gpupipe`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from benchmarks.contestants.peers.torchvision_chain import Photographs
from benchmarks.contestants.uncropped_gpupipe import Form
from benchmarks.job import SIDE, SIZE, Job

__all__ = ["batches"]


def batches(job: Job, form: Form) -> Iterator[tuple[Any, Any]]:
    """Yield one pass of (images, labels) as torch tensors, made by `job.threads` worker processes."""
    torch: Any = importlib.import_module("torch")

    def steps(v2: Any) -> list[Any]:
        return [v2.Resize(SIDE), v2.CenterCrop(SIZE)] if form == "center" else [v2.Resize((SIZE, SIZE))]

    photographs = Photographs(job, steps=steps)
    yield from torch.utils.data.DataLoader(photographs, batch_size=job.batch, drop_last=True, num_workers=job.threads)
