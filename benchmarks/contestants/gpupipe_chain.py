"""gpupipe_chain: the chain of the README, word for word, on the executor given by the options.

Without antialias the image is float32 from its window on, as in tf.data: no step rounds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from benchmarks.job import SIZE, Job
from benchmarks.machine import cores

__all__ = ["batches", "features"]


def features(io: Any) -> dict[str, Any]:
    """What is parsed of a record; `io` is gpupipe's."""
    return {
        "image/encoded": io.FixedLenFeature((), bytes),
        "image/class/label": io.FixedLenFeature((), "int64", default_value=-1),
    }


def batches(
    job: Job,
    device: Literal["cpu", "gpu"] = "cpu",
    backend: Literal["auto", "dali", "fast", "numpy"] = "auto",
    on_error: Literal["raise", "skip"] = "raise",
    manifest: bool = False,
    antialias: bool = True,
    smaller: bool = False,
    memory: bool = False,
) -> Generator[tuple[Any, Any], None, None]:
    """Yield one pass of (images, labels), optionally with a manifest of bad records, of which there are none.

    With `smaller`, JPEGs are decoded at a fraction of their size where the window is large (`approximate_decode`). From
    `memory`, the first 512 records come again and again, and no file is read while it is measured.
    """
    import gpupipe as gp
    from gpupipe import ops

    def train_example(record: Any) -> Any:
        x = gp.io.parse_single_example(record, features(gp.io))
        image = ops.decode_jpeg(x["image/encoded"], channels=3)
        if antialias:
            image = ops.random_resized_crop(image, (SIZE, SIZE))
        else:
            image = ops.random_resized_crop(ops.cast(image, "float32"), (SIZE, SIZE), antialias=False)
        image = ops.random_flip_left_right(image)
        return ops.normalize(image, mean=ops.IMAGENET_MEAN, std=ops.IMAGENET_STD), x["image/class/label"]

    files = gp.Dataset.list_files(list(job.files), seed=job.seed)
    records = files.interleave(gp.TFRecordDataset, cycle_length=job.cycle, num_parallel_calls=gp.AUTOTUNE)
    if memory and job.mode == "measure":
        records = gp.Dataset.from_list([bytes(record) for record in records.take(512)]).repeat()
    ds = (
        records.shuffle(job.shuffle, seed=job.seed)
        .map(train_example, num_parallel_calls=gp.AUTOTUNE)
        .batch(job.batch, drop_remainder=True)
        .prefetch(gp.AUTOTUNE)
    )
    # The default is one for each core; it also knows how many threads DALI needs then.
    threads = None if job.threads == cores() else job.threads
    options = gp.Options(device=device, backend=backend, threads=threads, seed=job.seed, on_error=on_error)
    if smaller:  # a checkout that is older than the option is measured without it
        options = options.merge(gp.Options(approximate_decode=True))
    with ExitStack() as stack:
        if manifest:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmarks-"))
            options = options.merge(gp.Options(error_manifest=Path(folder) / "manifest.jsonl"))
        yield from ds.with_options(options)
