"""uncropped_gpupipe: whole images to one size, without anything random, as for an evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from benchmarks.contestants.gpupipe_chain import features
from benchmarks.job import SIDE, SIZE, Job
from benchmarks.machine import cores

__all__ = ["Form", "batches"]

Form = Literal["resize", "linear", "center"]
"""`resize`: to a square with antialias, normalised, planes; `linear`: to a square without antialias, as it is;
`center`: the shorter side with antialias, the square in its middle, normalised, planes."""


def batches(job: Job, form: Form, backend: Literal["dali", "fast", "numpy"]) -> Iterator[tuple[Any, Any]]:
    """Yield one pass of (images, labels)."""
    import gpupipe as gp
    from gpupipe import ops

    def finished(record: Any) -> Any:
        x = gp.io.parse_single_example(record, features(gp.io))
        image = ops.decode_jpeg(x["image/encoded"], channels=3)
        if form == "center":
            image = ops.center_crop(ops.resize_shorter(image, SIDE), (SIZE, SIZE))
        else:
            image = ops.resize(image, (SIZE, SIZE), antialias=form == "resize")
        if form != "linear":
            image = ops.transpose(ops.normalize(image, mean=ops.IMAGENET_MEAN, std=ops.IMAGENET_STD), "CHW")
        return image, x["image/class/label"]

    files = gp.Dataset.list_files(list(job.files), shuffle=False)
    records = files.interleave(gp.TFRecordDataset, cycle_length=job.cycle, num_parallel_calls=gp.AUTOTUNE)
    ds = records.map(finished, num_parallel_calls=gp.AUTOTUNE).batch(job.batch, drop_remainder=True)
    threads = None if job.threads == cores() else job.threads
    yield from ds.prefetch(gp.AUTOTUNE).with_options(gp.Options(device="cpu", backend=backend, threads=threads))
