"""gpupipe_extract: interleave and parse in gpupipe, checksums verified, in three forms.

"stage" is the extract stage as it feeds a graph: payloads are views of the blocks read, as tf.data's stay in its own
tensors. "elements" iterates over the dataset, whose elements own their `bytes`: one more copy. "batches" also stacks
them, and holds 256 payloads at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.job import Job

__all__ = ["batches"]


def batches(job: Job, form: str) -> Iterator[tuple[Any, Any]]:
    """Yield one pass of (encoded images, labels) of `job.batch` rows.

    In a measured run of the forms without batches only the last image of each `job.batch` rows is kept; the others are
    dropped one by one, as a later stage would. An audit keeps them all.
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
        .with_options(gp.Options(device="cpu", threads=job.threads, seed=job.seed))
    )
    if form == "batches":
        yield from ds.batch(job.batch, drop_remainder=True).prefetch(gp.AUTOTUNE)
        return
    keep = job.mode != "measure"
    images, labels, row = np.empty(job.batch, object), np.empty(job.batch, np.int64), 0
    for image, label in ds if form == "elements" else _stage(ds):
        images[row if keep else -1] = bytes(image) if keep else image
        labels[row] = label
        row += 1
        if row == job.batch:
            yield images, labels
            images, labels, row = np.empty(job.batch, object), np.empty(job.batch, np.int64), 0


def _stage(ds: Any) -> Iterator[Any]:
    """Yield the columns that the extract stage of a chain passes on; raise its errors."""
    from gpupipe.flow.run import Context, Run
    from gpupipe.optimize.lower.compile import lower_in

    settings = ds.options().resolve()
    run = Run(settings)
    at = Context(run)
    try:
        for columns, _, _ in lower_in(ds.plan, settings, at).flow.open(at):
            if type(columns) is not tuple:
                raise columns.error
            yield columns
    finally:
        run.close()
