"""gpupipe_extract: interleave and parse in gpupipe, checksums verified, handed over in batches like tf.data's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.job import Job

__all__ = ["batches"]


def batches(job: Job) -> Iterator[tuple[Any, Any]]:
    """Yield one pass of (encoded images, labels) of `job.batch` rows."""
    import gpupipe as gp

    features = {
        "image/encoded": gp.io.FixedLenFeature((), bytes),
        "image/class/label": gp.io.FixedLenFeature((), "int64", default_value=-1),
    }

    def parsed(record: Any) -> Any:
        x = gp.io.parse_single_example(record, features)
        return x["image/encoded"], x["image/class/label"]

    ds = (
        gp.Dataset.list_files(list(job.files), seed=job.seed)
        .interleave(gp.TFRecordDataset, cycle_length=job.cycle, num_parallel_calls=gp.AUTOTUNE)
        .map(parsed, num_parallel_calls=gp.AUTOTUNE)
        .batch(job.batch, drop_remainder=True)
        .prefetch(gp.AUTOTUNE)
    )
    yield from ds.with_options(gp.Options(device="cpu", threads=job.threads, seed=job.seed))
