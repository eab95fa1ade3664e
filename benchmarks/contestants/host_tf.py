"""host_tf: the chains of `benchmarks.host` in tf.data."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

from benchmarks.job import Job

__all__ = ["passes"]


def passes(job: Job, python: Literal["py_function", "numpy_function"]) -> Callable[[], Iterator[Any]]:
    """Make the chain; each call of the result starts a pass, which yields the last leaf of every batch.

    Args:
        python: how a Python function is called for each element.
    """
    tf: Any = importlib.import_module("tensorflow")
    call = getattr(tf, python)
    count = job.elements
    numbers = tf.data.Dataset.range(count)
    match job.chain:
        case "map":
            ds = numbers.map(lambda x: call(lambda y: y + 1, [x], tf.int64))
        case "batch":
            ds = numbers
        case "batch-arrays":
            import numpy as np

            ds = tf.data.Dataset.from_tensor_slices(np.arange(count * 8, dtype=np.float32).reshape(count, 8) % 1024)
        case "shuffle":
            ds = numbers.shuffle(10_000, seed=job.seed)
        case "shuffle-all":
            ds = numbers.shuffle(count, seed=job.seed)
        case "shuffle-pairs":
            paths = [f"/data/train/n{i % 1000:08d}/n{i % 1000:08d}_{i}.JPEG" for i in range(count)]
            ds = tf.data.Dataset.from_tensor_slices((paths, tf.range(count, dtype=tf.int64))).shuffle(
                count, seed=job.seed
            )
        case "shuffle-filtered":
            ds = numbers.filter(lambda x: x >= 0).shuffle(count, seed=job.seed)
        case "filter":
            ds = numbers.filter(lambda x: x % 2 == 0)
        case "filter-python":
            ds = numbers.filter(lambda x: tf.ensure_shape(call(lambda y: y % 2 == 0, [x], tf.bool), ()))
        case "zip":
            ds = tf.data.Dataset.zip((numbers, tf.data.Dataset.range(count)))
        case "interleave":
            inner = count // 16
            ds = tf.data.Dataset.range(16).interleave(lambda _: tf.data.Dataset.range(inner), cycle_length=16)
        case _:
            raise ValueError(f"host_tf needs a chain of benchmarks.host, got {job.chain!r}")
    ds = ds.batch(job.batch)
    if job.prefetch:
        ds = ds.prefetch(job.prefetch)
    return lambda: (batch[-1] if type(batch) is tuple else batch for batch in ds.as_numpy_iterator())
