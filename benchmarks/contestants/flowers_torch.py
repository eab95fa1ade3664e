"""flowers_torch: a folder of classes with PyTorch's DataLoader and Pillow.

Decoded images are kept in one tensor in shared memory, which all worker processes fill in the first epoch.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.job import FLOWER, SHIFT, Job

__all__ = ["passes"]


class Flowers:
    """A map-style dataset: index -> (float32[180,180,3] in 0..1, label)."""

    def __init__(self, folder: Path, augmented: bool) -> None:
        torch: Any = importlib.import_module("torch")
        classes = sorted(path.name for path in folder.iterdir())
        self.files = [
            (str(path), label) for label, name in enumerate(classes) for path in sorted((folder / name).iterdir())
        ]
        self.augmented = augmented
        self.kept = torch.empty((len(self.files), FLOWER, FLOWER, 3), dtype=torch.uint8).share_memory_()
        self.known = torch.zeros(len(self.files), dtype=torch.bool).share_memory_()

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> tuple[Any, int]:
        from PIL import Image

        path, label = self.files[i]
        if not self.known[i]:
            with Image.open(path) as file:
                small = file.convert("RGB").resize((FLOWER, FLOWER), Image.Resampling.BILINEAR)
            self.kept[i].numpy()[:] = np.asarray(small)
            self.known[i] = True
        image: Any = self.kept[i].numpy()
        if self.augmented:
            image = _augmented(image)
        return np.multiply(image, np.float32(1 / 255), dtype=np.float32), label


def _augmented(image: Any) -> Any:
    if random.random() < 0.5:
        image = image[:, ::-1]
    y, x = random.randint(0, 2 * SHIFT), random.randint(0, 2 * SHIFT)
    padded = np.zeros((FLOWER + 2 * SHIFT, FLOWER + 2 * SHIFT, 3), np.uint8)
    padded[SHIFT:-SHIFT, SHIFT:-SHIFT] = image
    return padded[y : y + FLOWER, x : x + FLOWER]


def passes(job: Job) -> Callable[[], Iterator[tuple[Any, Any]]]:
    """Make the loader; each call of the result starts an epoch of float32[N,180,180,3] in 0..1 and int64[N]."""
    torch: Any = importlib.import_module("torch")
    loader: Any = torch.utils.data.DataLoader(
        Flowers(Path(job.files[0]), job.chain == "augmented"), batch_size=job.batch, shuffle=True,
        num_workers=job.threads, persistent_workers=True, generator=torch.Generator().manual_seed(job.seed),
    )  # fmt: skip
    return lambda: iter(loader)
