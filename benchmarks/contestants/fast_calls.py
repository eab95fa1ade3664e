"""fast_calls: what the executor "fast" calls of its libraries for the README's chain, and nothing around it.

The chain runs for a few batches, in which the encoded images, their windows and flips are recorded. Then one thread
makes the same calls with the same arguments again and again, into memory that was allocated before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import cycle
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.contestants import gpupipe_chain
from benchmarks.job import IMAGENET_MEAN, IMAGENET_STD, SIZE, Job

__all__ = ["batches"]

_RECORDED = 8
"""Batches that are recorded: 500 photographs."""

_BLOCKS = 28
"""Blocks of rows in which an image is normalised, as in the chain."""


def batches(job: Job) -> Iterator[tuple[Any, Any]]:
    """Yield the recorded batches again and again; in an audit those of the chain itself."""
    if job.mode != "measure":
        yield from gpupipe_chain.batches(job, "cpu", "fast")
        return
    recorded = _recorded(job)
    one = _calls()
    images = np.empty((job.batch, SIZE, SIZE, 3), np.float32)
    for rows, labels in cycle(recorded):
        for out, row in zip(images, rows, strict=True):
            one(*row, out)
        yield images, labels


def _recorded(job: Job) -> list[tuple[list[tuple[Any, Any, Any, bool]], Any]]:
    """(encoded image, offset and shape of its window, whether it is flipped) of each row, and the labels, by batch."""
    from gpupipe.ops._shared.decode_crop import DecodeCrop
    from gpupipe.ops._shared.resize_flip import ResizeFlip

    windows: list[tuple[Any, ...]] = []
    flips: list[Any] = []
    decode, resize = DecodeCrop.fast, ResizeFlip.fast

    def decoded(self: Any, data: Any, start: Any, shape: Any) -> Any:
        windows.append((bytes(data), start.copy(), shape.copy()))
        return decode(self, data, start, shape)

    def resized(self: Any, x: Any, size: Any, mirror: Any) -> Any:
        flips.append(bool(mirror))
        return resize(self, x, size, mirror)

    labels = []
    with (
        patch.object(DecodeCrop, "fast", decoded),
        patch.object(ResizeFlip, "fast", resized),
        closing(gpupipe_chain.batches(replace(job, threads=1), "cpu", "fast")) as chain,
    ):  # on one thread, so that rows are computed in their order
        for (_, row_labels), _ in zip(chain, range(_RECORDED), strict=False):
            labels.append(np.array(row_labels))
    rows = [(*window, flip) for window, flip in zip(windows, flips, strict=False)]  # it was stopped between the two
    if len(rows) < len(labels) * job.batch:
        raise RuntimeError(f"{len(rows)} calls were recorded for {len(labels)} batches: the chain makes other ones")
    return [(rows[n * job.batch : (n + 1) * job.batch], each) for n, each in enumerate(labels)]


def _calls() -> Callable[..., None]:
    """A function that makes the calls for one image, and writes it into a row of the batch."""
    import cv2
    from cykooz_resizer import FilterType, ImageData, PixelType, ResizeAlg, ResizeOptions, Resizer

    from gpupipe.extract.images.decode import Window, decode
    from gpupipe.extract.images.region import region_decoder

    nvimgcodec = region_decoder()

    cv2.setNumThreads(1)
    codec = nvimgcodec.Decoder(
        device_id=-99999, max_num_cpu_threads=1, backends=[nvimgcodec.Backend(nvimgcodec.CPU_ONLY)]
    )
    colours = nvimgcodec.DecodeParams(color_spec=nvimgcodec.ColorSpec.SRGB, apply_exif_orientation=False)
    resizer, pixel = Resizer(), PixelType.U8x3
    resized = ImageData(SIZE, SIZE, pixel)
    options = ResizeOptions(ResizeAlg.convolution(FilterType.bilinear), use_alpha=False)
    numbers = SIZE * SIZE // _BLOCKS
    mean = np.tile(np.array(IMAGENET_MEAN, np.float32), numbers)
    scale = np.tile(np.float32(1) / np.array(IMAGENET_STD, np.float32), numbers)

    def one(data: bytes, start: Any, shape: Any, flip: bool, out: Any) -> None:
        (top, left), (height, width) = start.tolist(), shape.tolist()
        region = nvimgcodec.Region((top, left), (top + height, left + width))
        found = codec.decode(nvimgcodec.CodeStream(data).get_sub_code_stream(region=region), params=colours)
        image = decode(data, window=Window(top, left, height, width)) if found is None else np.asarray(found)
        source = ImageData(width, height, pixel, image.tobytes())
        resizer.resize(source, resized, options)
        image = np.frombuffer(resized.get_buffer(), np.uint8).reshape(SIZE, SIZE, 3)
        if flip:
            image = cv2.flip(image, 1)
        flat = out.reshape(_BLOCKS, -1)
        np.copyto(flat, image.reshape(_BLOCKS, -1))
        np.subtract(flat, mean, out=flat)
        np.multiply(flat, scale, out=flat)

    return one
