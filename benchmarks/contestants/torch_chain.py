"""torch_chain: the chain as a PyTorch user writes it, a DataLoader over decoded files with Pillow.

The offsets of the records are looked up beforehand, so a worker reads one JPEG with one `pread`: like a folder of
files, without the cost of opening each. There are no checksums, as in a folder. The order is a full permutation.
"""

from __future__ import annotations

import importlib
import io
import math
import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.job import IMAGENET_MEAN, IMAGENET_STD, SIZE, Job
from benchmarks.tfrecord import Entry, entries

__all__ = ["Photographs", "batches", "window", "with_pillow"]


def window(height: int, width: int, rng: Any = random) -> tuple[int, int, int, int]:
    """Draw (x, y, w, h) by torchvision's RandomResizedCrop: 8-100 % of the area, aspect 3/4 to 4/3, ten attempts."""
    low, high = math.log(3 / 4), math.log(4 / 3)
    for _ in range(10):
        area = height * width * rng.uniform(0.08, 1.0)
        ratio = math.exp(rng.uniform(low, high))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return rng.randint(0, width - w), rng.randint(0, height - h), w, h
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return (width - w) // 2, (height - h) // 2, w, h


class Photographs:
    """A map-style dataset: index -> (uint8[224,224,3], label)."""

    def __init__(self, places: list[Entry]) -> None:
        self.places = places
        self._open: dict[str, int] = {}  # descriptors; each worker opens its own

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, i: int) -> tuple[Any, int]:
        place = self.places[i]
        if place.file not in self._open:
            self._open[place.file] = os.open(place.file, os.O_RDONLY)
        encoded = os.pread(self._open[place.file], place.length, place.offset)
        return np.array(with_pillow(encoded)), place.label  # a copy: torch wants writable memory


def with_pillow(encoded: bytes, rng: Any = random) -> npt.NDArray[np.uint8]:
    """Decode, crop, resize and perhaps mirror a JPEG: ``uint8[224,224,3]``."""
    from PIL import Image

    image: Image.Image = Image.open(io.BytesIO(encoded))
    x, y, w, h = window(image.height, image.width, rng)
    image = image.crop((x, y, x + w, y + h))
    if image.mode != "RGB":  # `convert` always copies
        image = image.convert("RGB")
    image = image.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    if rng.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(image)


class Normalize:
    """Collate uint8 images into a normalised float32 batch, in the worker if there is one.

    A row of pixels is one vector of 3 * 224 values, mean and std repeated along it: broadcasting over three channels
    takes 0.16 to 0.40 ms per image, this 0.05.
    """

    def __init__(self) -> None:
        torch: Any = importlib.import_module("torch")
        self.mean = torch.tensor(IMAGENET_MEAN).repeat(SIZE)
        self.scale = (1 / torch.tensor(IMAGENET_STD)).repeat(SIZE)

    def __call__(self, rows: list[tuple[Any, int]]) -> tuple[Any, Any]:
        torch: Any = importlib.import_module("torch")
        images = torch.empty((len(rows), SIZE, SIZE * 3), dtype=torch.float32)
        for out, (image, _) in zip(images, rows, strict=True):
            torch.sub(torch.from_numpy(image).view(SIZE, SIZE * 3), self.mean, out=out).mul_(self.scale)
        return images.view(len(rows), SIZE, SIZE, 3), torch.tensor([label for _, label in rows])


def batches(job: Job, workers: bool = True) -> Iterator[tuple[Any, Any]]:
    """Yield one pass of (images, labels) as torch tensors.

    Args:
        job: the files and the sizes.
        workers: whether `job.threads` processes make them; else the thread that takes them does, alone.
    """
    torch: Any = importlib.import_module("torch")
    if not workers:
        torch.set_num_threads(1)  # as a worker does
    known = {name: list(entries(name)) for name in dict.fromkeys(job.files)}
    loader = torch.utils.data.DataLoader(
        Photographs([place for name in job.files for place in known[name]]),
        batch_size=job.batch,
        shuffle=True,
        drop_last=True,
        num_workers=job.threads if workers else 0,
        collate_fn=Normalize(),
        generator=torch.Generator().manual_seed(job.seed),
    )
    yield from loader
