"""host_gpupipe: the chains of `benchmarks.host` in gpupipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.job import Job

__all__ = ["passes"]


def passes(job: Job) -> Callable[[], Iterator[Any]]:
    """Make the chain; each call of the result starts a pass, which yields the last leaf of every batch."""
    import gpupipe as gp

    count = job.elements
    numbers = gp.Dataset.range(count)
    match job.chain:
        case "map":
            ds = numbers.map(_next, traced=False)
        case "batch":
            ds = numbers
        case "batch-arrays":
            import numpy as np

            ds = gp.Dataset.from_tensor_slices(np.arange(count * 8, dtype=np.float32).reshape(count, 8) % 1024)
        case "shuffle":
            ds = numbers.shuffle(10_000, seed=job.seed)
        case "shuffle-all":
            ds = numbers.shuffle(count, seed=job.seed)
        case "shuffle-pairs":
            paths = [f"/data/train/n{i % 1000:08d}/n{i % 1000:08d}_{i}.JPEG" for i in range(count)]
            ds = gp.Dataset.from_tensor_slices((paths, list(range(count)))).shuffle(count, seed=job.seed)
        case "shuffle-filtered":
            ds = numbers.filter(lambda x: x >= 0).shuffle(count, seed=job.seed)
        case "filter":
            ds = numbers.filter(lambda x: x % 2 == 0)
        case "filter-python":
            ds = numbers.filter(_even)
        case "zip":
            ds = gp.Dataset.zip((numbers, gp.Dataset.range(count)))
        case "interleave":
            ds = gp.Dataset.range(16).interleave(lambda _: gp.Dataset.range(count // 16), cycle_length=16)
        case _:
            raise ValueError(f"host_gpupipe needs a chain of benchmarks.host, got {job.chain!r}")
    ds = ds.batch(job.batch)
    if job.prefetch:
        ds = ds.prefetch(job.prefetch)
    return lambda: (batch[-1] if type(batch) is tuple else batch for batch in ds)


def _next(x: Any) -> Any:
    try:  # a statement, so that no optimiser can trace this as an expression and run it on whole batches
        return x + 1
    except OverflowError:
        return x


def _even(x: Any) -> Any:
    try:
        return x % 2 == 0
    except OverflowError:
        return False
