"""tf_shuffle: records through a shuffle buffer in tf.data, parsed before it or after it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any, Literal

from benchmarks.contestants.tf_chain import features, records
from benchmarks.job import Job

__all__ = ["batches"]


def batches(job: Job, parse: Literal["before", "after"]) -> Iterator[tuple[Any, Any]]:
    """Yield one pass of (payloads, labels); a `job.shuffle` of 1 leaves the shuffle out."""
    tf: Any = importlib.import_module("tensorflow")
    wanted = features(tf)

    def parsed(record: Any) -> tuple[Any, Any]:
        x = tf.io.parse_single_example(record, wanted)
        return x["image/encoded"], x["image/class/label"]

    ds = records(tf, job)
    if parse == "before":
        ds = ds.map(parsed, num_parallel_calls=tf.data.AUTOTUNE)
    if job.shuffle > 1:
        ds = ds.shuffle(job.shuffle, seed=job.seed)
    if parse == "after":
        ds = ds.map(parsed, num_parallel_calls=tf.data.AUTOTUNE)
    yield from ds.batch(job.batch, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
