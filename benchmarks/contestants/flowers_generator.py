"""flowers_generator: a folder of classes with Keras' ImageDataGenerator, which keeps nothing between epochs."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from benchmarks.job import FLOWER, SHIFT, Job

__all__ = ["passes"]


def passes(job: Job) -> Callable[[], Iterator[tuple[Any, Any]]]:
    """Make the generator; each call of the result starts an epoch of float32[N,180,180,3] in 0..1 and float32[N]."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    keras: Any = importlib.import_module("tensorflow").keras
    part = SHIFT / FLOWER
    drawn = {"horizontal_flip": True, "width_shift_range": part, "height_shift_range": part, "fill_mode": "constant"}
    make = keras.preprocessing.image.ImageDataGenerator(
        rescale=1 / 255.0, **(drawn if job.chain == "augmented" else {})
    )
    flow = make.flow_from_directory(
        job.files[0], target_size=(FLOWER, FLOWER), batch_size=job.batch, class_mode="sparse", seed=job.seed,
        interpolation="bilinear",
    )  # fmt: skip
    return lambda: islice(flow, len(flow))  # the generator itself has no end
