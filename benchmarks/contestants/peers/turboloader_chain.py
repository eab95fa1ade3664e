"""turboloader_chain: the chain as one TurboLoader: a tar of JPEGs, cropped, mirrored and normalised in one pass of C++.

TurboLoader reads no TFRecords: the JPEGs are copied into a tar before its loader is made. It has no labels: batches
come with the places of their rows in the tar. Its pool has one thread for each core, which cannot be chosen. It decodes
at a fraction of the size where a window is large enough for that, which the probes are not.
"""

from __future__ import annotations

import importlib
import io
import math
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contestants.peers.source import Places
from benchmarks.job import SIZE, Job
from benchmarks.machine import cores

__all__ = ["batches"]


def batches(job: Job) -> Iterator[tuple[Any, Any]]:
    """Yield one pass of (images, labels) as NumPy arrays.

    A pass is some epochs of one loader, each of whole batches, since between two of them the loader starts anew.

    Raises:
        ValueError: `job.threads` is not the number of cores.
    """
    if job.threads != cores():
        raise ValueError(f"TurboLoader runs one thread for each of {cores()} cores, got threads={job.threads}")
    turboloader: Any = importlib.import_module("turboloader")
    places = Places(job)
    distinct = len(Places(Job(job.contestant, tuple(dict.fromkeys(job.files)))))
    copies = min(len(places) // distinct, job.batch // math.gcd(distinct, job.batch))
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        path = Path(folder) / "photographs.tar"
        labels = _write(path, places, distinct * copies)
        loader = turboloader.DataLoader(
            str(path),
            batch_size=job.batch,
            num_workers=job.threads,
            shuffle=True,
            seed=job.seed,
            image_size=SIZE,
            output_format="numpy",
            transform=turboloader.ImageNetNormalize(),
            train_aug=True,
            antialias=True,
            drop_last=True,
        )
        for epoch in range(len(places) // (distinct * copies)):
            loader.set_epoch(epoch)
            for images, about in loader:
                yield images, labels[np.asarray(about["indices"])]


def _write(path: Path, places: Places, count: int) -> Any:
    """Write the first JPEGs as a tar; return their labels."""
    labels = np.empty(count, np.int64)
    with tarfile.open(path, "w") as tar:
        for i in range(count):
            encoded, labels[i] = places[i]
            about = tarfile.TarInfo(f"{i:08}.jpg")
            about.size = len(encoded)
            tar.addfile(about, io.BytesIO(encoded))
    return labels
