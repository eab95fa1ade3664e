"""tf_extract: interleave and parse in tf.data; fastest if whole batches are parsed, which few people write."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from benchmarks.contestants.tf_chain import features, records
from benchmarks.job import Job

__all__ = ["batches"]


def batches(job: Job, batched: bool) -> Iterator[tuple[Any, Any]]:
    """Yield one pass of (encoded images, labels) as TensorFlow tensors of `job.batch` rows."""
    tf: Any = importlib.import_module("tensorflow")
    wanted = features(tf)

    def pair(x: Any) -> tuple[Any, Any]:
        return x["image/encoded"], x["image/class/label"]

    ds = records(tf, job)
    if batched:
        ds = ds.batch(job.batch, drop_remainder=True)
        ds = ds.map(lambda x: pair(tf.io.parse_example(x, wanted)), num_parallel_calls=tf.data.AUTOTUNE)
    else:
        ds = ds.map(lambda x: pair(tf.io.parse_single_example(x, wanted)), num_parallel_calls=tf.data.AUTOTUNE)
        ds = ds.batch(job.batch, drop_remainder=True)
    options = tf.data.Options()
    options.threading.private_threadpool_size = job.threads
    yield from ds.prefetch(tf.data.AUTOTUNE).with_options(options)
