"""gpupipe_shuffle: records through a shuffle buffer in gpupipe, parsed before it or after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from benchmarks.job import Job

__all__ = ["batches"]


def batches(job: Job, parse: Literal["before", "after"]) -> Iterator[tuple[Any, Any]]:
    """Yield one pass of (payloads, labels); a `job.shuffle` of 1 leaves the shuffle out."""
    import gpupipe as gp

    features = {
        "image/encoded": gp.io.FixedLenFeature((), bytes),
        "image/class/label": gp.io.FixedLenFeature((), "int64", default_value=-1),
    }

    def parsed(record: Any) -> Any:
        x = gp.io.parse_single_example(record, features)
        return x["image/encoded"], x["image/class/label"]

    files = gp.Dataset.list_files(list(job.files), seed=job.seed)
    ds = files.interleave(gp.TFRecordDataset, cycle_length=job.cycle, num_parallel_calls=gp.AUTOTUNE)
    if parse == "before":
        ds = ds.map(parsed, num_parallel_calls=gp.AUTOTUNE)
    if job.shuffle > 1:
        ds = ds.shuffle(job.shuffle, seed=job.seed)
    if parse == "after":
        ds = ds.map(parsed, num_parallel_calls=gp.AUTOTUNE)
    ds = ds.batch(job.batch, drop_remainder=True).prefetch(gp.AUTOTUNE)
    yield from ds.with_options(gp.Options(device="cpu", threads=job.threads, seed=job.seed))
