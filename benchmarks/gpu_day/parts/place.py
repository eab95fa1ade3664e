"""place: whether an image has the same pixels in every run, at every index of a batch, in batches of any size."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.decoders import decoding, differences, make, rows
from benchmarks.gpu_day.inputs import photographs
from benchmarks.gpu_day.parts.pixels import LOADS
from benchmarks.gpu_day.plan import Part, Questions

__all__ = ["PART", "questions", "summary"]

PART = Part("place", "whether pixels depend on the run, the index in a batch, its size", 90, 40)


def questions(day: Day) -> Questions:
    """Return a question for each share of the JPEG engines."""
    return {f"load {load}": partial(_moved, day, load) for load in LOADS}


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return how many images differ, and by how much."""
    return [
        f"{name}: " + ", ".join(f"{how}: {one['images']} images differ by {one['most']}" for how, one in found.items())
        for name, found in answers.items()
    ]


def _moved(day: Day, load: float) -> dict[str, Any]:
    files = photographs(day, day.batch)
    pipeline = make(day, decoding(load))
    first = rows(pipeline, files)
    order = np.random.default_rng(0).permutation(len(files))
    size = day.some(8, 2)
    parts = [row for at in range(0, len(files), size) for row in rows(pipeline, files[at : at + size])]
    return {
        "again": differences(rows(pipeline, files), first),
        "moved": differences(rows(pipeline, [files[i] for i in order]), [first[i] for i in order]),
        f"batches of {size}": differences(parts, first),
    }
