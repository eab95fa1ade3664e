"""prepared_turboloader: TurboLoader's images decoded once (TBL-RAW), which it serves from a memory map.

All images have one size there; this one has the mean shape and as many pixels as those that gpupipe shrinks. The order
of the axes is that of the others, as all are compared.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.job import SIZE, Job
from benchmarks.prepared import IMAGES, LABELS, SHORTER

__all__ = ["batches"]

_SHAPE = (SHORTER, SHORTER * 4 // 3)


def batches(job: Job) -> Iterator[tuple[Any, Any]]:
    """Yield as many epochs of (images, labels) as `job.files` has entries, which all name the folder of forms."""
    turbo: Any = importlib.import_module("turboloader")
    folder = Path(job.files[0])
    made = folder / "turboloader.tbl"
    if not made.exists():
        part = folder / "turboloader.part"
        turbo.preprocess_to_tbl(str(folder / IMAGES), str(part), image_size=_SHAPE, num_workers=job.threads)
        os.replace(part, made)
    labels = np.array((folder / LABELS).read_text().split(), np.int64)
    loader = turbo.TblRawImageLoader(
        made, job.batch, seed=job.seed, train_aug=True, hflip_prob=0.5, image_size=SIZE, channels_last=True
    )
    for epoch in range(len(job.files)):
        loader.set_epoch(epoch)
        for images, meta in loader:
            yield images, labels[meta["indices"]]
