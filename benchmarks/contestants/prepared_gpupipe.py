"""prepared_gpupipe: epochs over a form of the images, all with the same chain; or over decoded images in a cache."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from benchmarks.job import SIZE, Job
from benchmarks.machine import cores
from benchmarks.prepared import SHORTER

__all__ = ["batches"]


def batches(
    job: Job, form: Literal["whole", "small", "half", "decoded"] = "whole", cached: bool = False
) -> Iterator[tuple[Any, Any]]:
    """Yield as many epochs of (images, labels) as `job.files` has entries, which all name the folder of forms.

    Args:
        job: the job.
        form: of the shards.
        cached: whether the first epoch keeps shrunk images in a file for later ones.
    """
    import gpupipe as gp
    from gpupipe import ops

    def decoded(record: Any) -> Any:
        x = gp.io.parse_single_example(
            record,
            {
                "image/encoded": gp.io.FixedLenFeature((), bytes),
                "image/class/label": gp.io.FixedLenFeature((), "int64", default_value=-1),
            },
        )
        return ops.decode_jpeg(x["image/encoded"], channels=3), x["image/class/label"]

    def shrunk(record: Any) -> Any:
        image, label = decoded(record)
        return ops.resize_shorter(image, SHORTER), label

    def augmented(image: Any, label: Any) -> Any:
        image = ops.random_flip_left_right(ops.random_resized_crop(image, (SIZE, SIZE)))
        return ops.normalize(image, mean=ops.IMAGENET_MEAN, std=ops.IMAGENET_STD), label

    with ExitStack() as stack:
        folder = Path(job.files[0])
        shards = gp.Dataset.list_files(str(folder / form / "*.tfrecord"), seed=job.seed)
        ds = shards.interleave(gp.TFRecordDataset, cycle_length=job.cycle, num_parallel_calls=gp.AUTOTUNE)
        if cached:
            temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="cache-", dir=folder))
            ds = ds.map(shrunk).cache(str(Path(temporary) / "images")).shuffle(job.shuffle, seed=job.seed)
        else:
            ds = ds.shuffle(job.shuffle, seed=job.seed).map(decoded)
        ds = ds.repeat(len(job.files)).map(augmented).batch(job.batch, drop_remainder=True).prefetch(gp.AUTOTUNE)
        threads = None if job.threads == cores() else job.threads
        yield from ds.with_options(gp.Options(device="cpu", threads=threads, seed=job.seed))
