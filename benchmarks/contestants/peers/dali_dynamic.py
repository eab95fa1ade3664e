"""dali_dynamic: the chain in DALI's dynamic mode, in which operators are called one by one on batches.

As in `dali_chain`, only the crop window is decoded. With `capture`, DALI records the calls of the loop and runs later
batches ahead as a pipeline.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.job import IMAGENET_MEAN, IMAGENET_STD, SIZE, Job
from benchmarks.tfrecord import frames, write_index

__all__ = ["batches"]


def batches(job: Job, capture: bool) -> Iterator[tuple[Any, Any]]:
    """Yield one pass of (images, labels) as NumPy arrays, made by `job.threads` threads."""
    ndd: Any = importlib.import_module("nvidia.dali.experimental.dynamic")
    tfrec: Any = importlib.import_module("nvidia.dali.tfrecord")
    ndd.set_num_threads(job.threads)
    ndd.random.set_seed(job.seed)
    with tempfile.TemporaryDirectory() as folder:
        index = {name: str(Path(folder) / f"{i}.idx") for i, name in enumerate(dict.fromkeys(job.files))}
        for name, path in index.items():
            write_index(name, Path(path))
        left = sum(sum(1 for _ in frames(name)) for name in job.files) // job.batch
        reader = ndd.readers.TFRecord(
            path=list(job.files),
            index_path=[index[name] for name in job.files],
            features={
                "image/encoded": tfrec.FixedLenFeature((), tfrec.string, ""),
                "image/class/label": tfrec.FixedLenFeature([1], tfrec.int64, -1),
            },
            random_shuffle=job.shuffle > 1,
            initial_fill=max(1, job.shuffle),
            seed=job.seed,
        )
        for record in reader.next_epoch(batch_size=job.batch, capture=capture):
            if not left:  # a short last batch
                continue
            left -= 1
            images, labels = _finished(ndd, record)
            yield np.asarray(ndd.as_tensor(images)), np.asarray(ndd.as_tensor(labels))[:, 0]


def _finished(ndd: Any, record: Any) -> tuple[Any, Any]:
    images = ndd.decoders.image_random_crop(
        record["image/encoded"],
        device="cpu",
        random_area=[0.08, 1.0],
        random_aspect_ratio=[3 / 4, 4 / 3],
        adjust_orientation=False,
        jpeg_fancy_upsampling=False,
    )
    images = ndd.crop_mirror_normalize(
        ndd.resize(images, size=[SIZE, SIZE]),
        mirror=ndd.random.coin_flip(batch_size=images.batch_size),
        mean=list(IMAGENET_MEAN),
        std=list(IMAGENET_STD),
        output_layout="HWC",
    )
    return images, record["image/class/label"]
