"""grain_chain: the chain as a Grain user writes it: a MapDataset, shuffled as a whole, whose random map uses Pillow.

Grain makes elements with threads, or with worker processes, each of which makes whole batches.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.contestants.peers.source import Places, normalised
from benchmarks.contestants.torch_chain import with_pillow
from benchmarks.job import SIZE, Job

__all__ = ["batches", "finish"]


def finish(record: tuple[bytes, int], rng: np.random.Generator) -> tuple[Any, int]:
    """Make (float32[224,224,3], label) of (JPEG, label)."""
    out = np.empty((SIZE, SIZE, 3), np.float32)
    normalised(with_pillow(record[0], random.Random(int(rng.integers(1 << 62)))), out)
    return out, record[1]


def batches(job: Job, workers: bool) -> Iterator[tuple[Any, Any]]:
    """Yield one pass of (images, labels) as NumPy arrays, made by `job.threads` threads, or as many processes."""
    grain: Any = importlib.import_module("grain")
    ds = grain.MapDataset.source(Places(job)).shuffle(seed=job.seed).random_map(finish, seed=job.seed)
    if workers:
        importlib.import_module(
            "absl.flags"
        ).FLAGS.mark_as_parsed()  # as Grain asks of programs without absl's `app.run`
        ahead = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)  # batches of one process
        ds = ds.batch(job.batch, drop_remainder=True).to_iter_dataset(ahead)
        ds = ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=job.threads, per_worker_buffer_size=2))
    else:
        ahead = grain.ReadOptions(num_threads=job.threads, prefetch_buffer_size=2 * job.batch)  # elements
        ds = ds.to_iter_dataset(ahead).batch(job.batch, drop_remainder=True)
    yield from ds
