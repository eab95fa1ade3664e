"""spdl_chain: the chain as an SPDL pipeline of threads.

SPDL decodes with FFmpeg, whose filters also crop, mirror and resize; its bilinear filter is antialiased. In planes with
halved colours FFmpeg moves a window to the next even pixel. Without FFmpeg's shared libraries `spdl.io` does not load;
SPDL's pipeline itself takes any function, and with `decoder="pillow"` it does what `torch` does, in threads.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from benchmarks.contestants.peers.source import Places, normalised
from benchmarks.contestants.torch_chain import window, with_pillow
from benchmarks.job import SIZE, Job

__all__ = ["batches"]

Row = tuple[Any, int]


def batches(job: Job, decoder: Literal["ffmpeg", "pillow"]) -> Iterator[tuple[Any, Any]]:
    """Yield one pass of (images, labels) as NumPy arrays, made by `job.threads` threads."""
    pipeline: Any = importlib.import_module("spdl.pipeline")
    random.seed(job.seed)
    places = Places(job)
    decode = _with_ffmpeg() if decoder == "ffmpeg" else with_pillow

    def finish(i: int) -> Row:
        encoded, label = places[i]
        out = np.empty((SIZE, SIZE, 3), np.float32)
        normalised(decode(encoded), out)
        return out, label

    built = (
        pipeline.PipelineBuilder()
        .add_source(places.shuffled(job.seed))
        .pipe(finish, concurrency=job.threads)
        .aggregate(job.batch, drop_last=True)
        .pipe(_stacked)
        .add_sink(2)
        .build(num_threads=job.threads + 1, max_failures=0)  # one more, so that stacking waits for no decoder
    )
    with built.auto_stop():
        yield from built


def _stacked(rows: list[Row]) -> tuple[Any, Any]:
    return np.stack([image for image, _ in rows]), np.array([label for _, label in rows])


def _with_ffmpeg() -> Any:
    spdl: Any = importlib.import_module("spdl.io")

    def decode(encoded: bytes) -> Any:
        packets = spdl.demux_image(encoded)
        x, y, w, h = window(packets.height, packets.width)
        mirror = "hflip," if random.random() < 0.5 else ""
        steps = f"crop={w}:{h}:{x}:{y},{mirror}scale={SIZE}:{SIZE}:flags=bilinear,format=pix_fmts=rgb24"
        return spdl.to_numpy(spdl.convert_frames(spdl.decode_packets(packets, filter_desc=steps)))

    return decode
