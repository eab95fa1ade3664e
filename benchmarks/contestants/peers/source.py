"""source: what contestants without a reader of TFRecords share: where each JPEG is, reading it, normalising an image.

As in `torch_chain`, the places of the records are looked up beforehand and one JPEG is read with one `pread`.
"""

from __future__ import annotations

import os
import random

import numpy as np
import numpy.typing as npt

from benchmarks.job import IMAGENET_MEAN, IMAGENET_STD, SIZE, Job
from benchmarks.tfrecord import Entry, entries

__all__ = ["Places", "normalised"]

# A line of pixels is one vector, mean and std repeated along it: broadcasting over three channels is slower.
_MEAN = np.tile(np.array(IMAGENET_MEAN, np.float32), SIZE)
_SCALE = np.tile(1 / np.array(IMAGENET_STD, np.float32), SIZE)


class Places:
    """The records of a job's files, by index; threads may read at the same time, and so may forked processes."""

    def __init__(self, job: Job) -> None:
        known: dict[str, list[Entry]] = {name: list(entries(name)) for name in dict.fromkeys(job.files)}
        self._places = [place for name in job.files for place in known[name]]
        self._open: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, i: int) -> tuple[bytes, int]:
        """Return the JPEG and the label of a record."""
        place = self._places[i]
        if place.file not in self._open:  # two threads may both open it: one more descriptor, no harm
            self._open[place.file] = os.open(place.file, os.O_RDONLY)
        return os.pread(self._open[place.file], place.length, place.offset), place.label

    def __getstate__(self) -> dict[str, object]:
        return {"_places": self._places, "_open": {}}  # a worker process opens its own

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)

    def shuffled(self, seed: int) -> list[int]:
        """Return all indices in random order."""
        order = list(range(len(self)))
        random.Random(seed).shuffle(order)
        return order


def normalised(image: npt.NDArray[np.uint8], out: npt.NDArray[np.float32]) -> None:
    """Write (image - mean) / std of a ``uint8[224,224,3]`` into a ``float32[224,224,3]``."""
    lines = out.reshape(SIZE, -1)
    np.subtract(image.reshape(SIZE, -1), _MEAN, out=lines)
    np.multiply(lines, _SCALE, out=lines)
