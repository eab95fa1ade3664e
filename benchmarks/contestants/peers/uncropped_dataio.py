"""uncropped_dataio: whole images to one size by dataio-rs, see `uncropped_gpupipe`; it reads where the JPEGs are.

It decodes with the libturbojpeg of the system; without one with a decoder of its own, which takes longer.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.contestants.peers.source import Places
from benchmarks.contestants.uncropped_gpupipe import Form
from benchmarks.job import SIDE, SIZE, Job

__all__ = ["batches"]


def batches(job: Job, form: Form) -> Iterator[tuple[Any, Any]]:
    """Yield one pass of (images, labels)."""
    os.environ["DATAIO_CPU_WORKERS"] = str(job.threads)
    dataio: Any = importlib.import_module("dataio")
    places = Places(job)

    def records() -> Iterator[dict[str, Any]]:
        for i in range(len(places)):
            encoded, label = places[i]
            yield {"key": str(i), "image": encoded, "label": label}

    images = dataio.slot("image").decode_image(mode="rgb")
    if form == "center":
        images = images.resize_short(SIDE, interp="bilinear").center_crop(h=SIZE, w=SIZE)
    else:
        images = images.resize(h=SIZE, w=SIZE, interp="bilinear")
    stages = images.normalize("imagenet"), dataio.slot("label").passthrough()
    pipe = dataio.pipeline(*stages, dataio.batch(job.batch, drop_last=True, prefetch=4))
    with pipe.bind(records).run("numpy", on_failure="strict") as loader:
        for batch in loader:
            yield batch["image"], np.asarray(batch["label"])
