"""dali_chain: the chain as a DALI user writes it by hand, on the CPU or the GPU.

DALI's reader verifies no checksums and reads the shards one after another, shuffled by a buffer. On the CPU decoding
only the crop window is faster. On a GPU it is not: JPEG engines decode whole images only, and regions crash
nvImageCodec 0.9.0 on some GPUs (NVIDIA/nvImageCodec#55). DALI upsamples colours in a simple way unless libjpeg's
("fancy") is requested, which costs more and is what gpupipe requests.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.job import IMAGENET_MEAN, IMAGENET_STD, SIZE, Job
from benchmarks.tfrecord import frames, write_index

__all__ = ["batches", "pipeline"]


def batches(
    job: Job,
    device: Literal["cpu", "gpu"],
    decode: Literal["whole", "region"],
    fancy: bool = False,
    antialias: bool = True,
) -> Iterator[tuple[Any, Any]]:
    """Yield one pass of (images, labels); on the GPU both stay there as DALI tensors.

    Args:
        job: the files and the sizes.
        device: where images are decoded and transformed.
        decode: "whole" images, from which a window is cropped and resized, or only the "region" of the window.
        fancy: upsample the colours of a JPEG as libjpeg does.
        antialias: average over all source pixels when shrinking; without it the images are float32 from there on.
    """
    with tempfile.TemporaryDirectory() as folder:
        index = {name: str(Path(folder) / f"{i}.idx") for i, name in enumerate(dict.fromkeys(job.files))}
        for name, path in index.items():
            write_index(name, Path(path))
        pipe = pipeline(job, [index[name] for name in job.files], device, decode, fancy, antialias)
        records = {name: sum(1 for _ in frames(name)) for name in index}
        for _ in range(sum(records[name] for name in job.files) // job.batch):
            images, labels = pipe.run()
            if device == "gpu":
                yield images.as_tensor(), labels.as_tensor()
            else:
                yield np.asarray(images.as_tensor()), np.asarray(labels.as_tensor())[:, 0]


def pipeline(
    job: Job,
    index: list[str],
    device: Literal["cpu", "gpu"],
    decode: Literal["whole", "region"],
    fancy: bool = False,
    antialias: bool = True,
) -> Any:
    """Build the pipeline; `index` holds the index file of each of the job's files."""
    dali: Any = importlib.import_module("nvidia.dali")
    fn: Any = importlib.import_module("nvidia.dali.fn")
    types: Any = importlib.import_module("nvidia.dali.types")
    tfrec: Any = importlib.import_module("nvidia.dali.tfrecord")
    pipe = dali.Pipeline(
        batch_size=job.batch,
        num_threads=job.threads,
        device_id=0 if device == "gpu" else None,
        prefetch_queue_depth=2,
        seed=job.seed,
    )
    with pipe:
        record = fn.readers.tfrecord(
            path=list(job.files),
            index_path=index,
            features={
                "image/encoded": tfrec.FixedLenFeature((), tfrec.string, ""),
                "image/class/label": tfrec.FixedLenFeature([1], tfrec.int64, -1),
            },
            random_shuffle=job.shuffle > 1,
            initial_fill=max(1, job.shuffle),
            name="reader",
        )
        resize: dict[str, Any] = {} if antialias else {"antialias": False, "dtype": types.FLOAT}
        law: dict[str, Any] = {"random_area": [0.08, 1.0], "random_aspect_ratio": [3 / 4, 4 / 3]}
        how: dict[str, Any] = {
            "device": "mixed" if device == "gpu" else "cpu",
            "adjust_orientation": False,
            "jpeg_fancy_upsampling": fancy,
        }
        if decode == "region":
            images = fn.decoders.image_random_crop(record["image/encoded"], **law, **how)
            images = fn.resize(images, size=[SIZE, SIZE], **resize)
        else:
            images = fn.decoders.image(record["image/encoded"], **how)
            images = fn.random_resized_crop(images, size=[SIZE, SIZE], **law, **resize)
        images = fn.crop_mirror_normalize(
            images,
            mirror=fn.random.coin_flip(),
            mean=list(IMAGENET_MEAN),
            std=list(IMAGENET_STD),
            output_layout="HWC",
        )
        labels = record["image/class/label"]
        pipe.set_outputs(images, labels.gpu() if device == "gpu" else labels)
    pipe.build()
    return pipe
