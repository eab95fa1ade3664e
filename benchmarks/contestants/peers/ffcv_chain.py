"""ffcv_chain: the chain as an FFCV loader, whose files are made of the shards before it: JPEGs as they are.

Written from FFCV's documentation and not run yet: its package builds only beside OpenCV's and libjpeg-turbo's headers.
FFCV resizes with OpenCV's INTER_AREA.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contestants.peers.source import Places
from benchmarks.job import IMAGENET_MEAN, IMAGENET_STD, SIZE, Job

__all__ = ["batches"]


class Records:
    """What FFCV's writer asks of a data set: index -> (pixels of the JPEG, label)."""

    def __init__(self, places: Places) -> None:
        self.places = places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, i: int) -> tuple[Any, int]:
        cv2: Any = importlib.import_module("cv2")
        encoded, label = self.places[i]
        return cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR)[..., ::-1], label


def batches(job: Job) -> Iterator[tuple[Any, Any]]:
    """Yield one pass of (images, labels) as torch tensors, made by `job.threads` threads."""
    fields, loader, writer, transforms = (
        importlib.import_module(f"ffcv.{name}") for name in ("fields", "loader", "writer", "transforms")
    )
    decoders: Any = importlib.import_module("ffcv.fields.decoders")
    distinct = Job(job.contestant, tuple(dict.fromkeys(job.files)))
    times = len(job.files) // len(distinct.files)
    mean, std = np.array(IMAGENET_MEAN), np.array(IMAGENET_STD)
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        path = str(Path(folder) / "photographs.beton")
        kinds = {"image": fields.RGBImageField(write_mode="jpg", jpeg_quality=95), "label": fields.IntField()}
        writer.DatasetWriter(path, kinds, num_workers=job.threads).from_indexed_dataset(Records(Places(distinct)))
        image = [
            decoders.RandomResizedCropRGBImageDecoder((SIZE, SIZE)),
            transforms.RandomHorizontalFlip(),
            transforms.NormalizeImage(mean, std, np.float32),
            transforms.ToTensor(),
        ]
        label = [decoders.IntDecoder(), transforms.ToTensor(), transforms.Squeeze()]
        made = loader.Loader(
            path,
            batch_size=job.batch,
            num_workers=job.threads,
            order=loader.OrderOption.RANDOM,
            seed=job.seed,
            drop_last=True,
            pipelines={"image": image, "label": label},
        )
        for _ in range(times):
            yield from made
