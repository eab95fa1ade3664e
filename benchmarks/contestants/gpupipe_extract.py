"""gpupipe_extract: interleave and parse in gpupipe, checksums verified.

gpupipe parses record by record; its best form hands each element on as it comes, as to a stage behind it. The batched
form also stacks them, which is what tf.data does to be fast; it holds 256 payloads at a time and copies each of them
once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.job import Job

__all__ = ["batches"]


def batches(job: Job, batched: bool) -> Iterator[tuple[Any, Any]]:
    """Yield one pass of (encoded images, labels) of `job.batch` rows.

    In a measured run of the form without batches only the last image of each `job.batch` rows is kept, the others are
    let go one by one as a stage behind would; an audit keeps them all.
    """
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
    )
    ds = ds.with_options(gp.Options(device="cpu", threads=job.threads, seed=job.seed))
    if batched:
        yield from ds.batch(job.batch, drop_remainder=True).prefetch(gp.AUTOTUNE)
        return
    images, labels = np.empty(job.batch, object), np.empty(job.batch, np.int64)
    row = 0
    for image, label in ds:
        images[row if job.mode != "measure" else -1] = image
        labels[row] = label
        row += 1
        if row == job.batch:
            yield images, labels
            images, labels = np.empty(job.batch, object), np.empty(job.batch, np.int64)
            row = 0
