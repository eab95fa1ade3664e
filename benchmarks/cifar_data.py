"""cifar_data: the images of `benchmarks.cifar`, and what a contestant made of them. Imports no contestant's library."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.job import Audit, Job

__all__ = ["MEAN", "PAD", "PROBES", "SIDE", "STD", "data", "describe"]

SIDE, PAD = 32, 4
"""Of an image, and how many zeros are around it before a window of its size is cut out."""
MEAN, STD = (125.307, 122.950, 113.865), (62.993, 62.089, 66.705)
"""Of the images of CIFAR-10, in 0..255."""
PROBES = 512


def data(job: Job) -> tuple[Any, Any]:
    """Make uint8[N,32,32,3] and int64[N]: random values, or images whose colours are their own coordinates."""
    if job.mode != "cifar-audit":
        images = np.random.default_rng(0).integers(0, 256, (job.elements, SIDE, SIDE, 3), dtype=np.uint8)
        return images, np.arange(job.elements) % 10
    return probes(job.elements), np.arange(job.elements)


def probes(count: int) -> Any:
    """Make images whose first two channels are row and column, times 7, and 9 in the first; the third is a number."""
    images = np.empty((count, SIDE, SIDE, 3), np.uint8)
    images[..., 0] = 7 * np.arange(SIDE)[:, None] + 9
    images[..., 1] = 7 * np.arange(SIDE)
    images[..., 2] = (np.arange(count) % 256)[:, None, None]
    return images


def describe(contestant: str, epochs: Iterable[Any], count: int) -> Audit:
    """Describe epochs over `count` probes: labels, mean place of the windows, share of mirrored ones, largest error.

    Each image is compared with the crop, mirrored or not, that its middle shows it to be.

    Args:
        contestant: its name.
        epochs: iterators of (float32[N,32,32,3], labels[N]).
        count: probes.
    """
    padded = np.pad(probes(count), ((0, 0), (PAD, PAD), (PAD, PAD), (0, 0)))
    mean, std = np.array(MEAN), np.array(STD)
    times = np.zeros(count, int)
    mirrored, tops, lefts, errors = [], [], [], []
    shape: tuple[int, ...] = ()
    dtype = ""
    for images, labels in (batch for epoch in epochs for batch in epoch):
        images = np.asarray(images)
        shape, dtype = max(shape, images.shape), images.dtype.name
        middle = SIDE // 2
        for image, label in zip(images.astype(np.float64), np.asarray(labels).tolist(), strict=True):
            times[label] += 1
            pixels = image * std + mean
            flip = pixels[middle, middle, 1] < pixels[middle, middle - 1, 1]
            turned = pixels[:, ::-1] if flip else pixels
            top = round((turned[middle, middle, 0] - 9) / 7) + PAD - middle
            left = round(turned[middle, middle, 1] / 7) + PAD - middle
            window = padded[label, top : top + SIDE, left : left + SIDE]
            expected = ((window[:, ::-1] if flip else window) - mean) / std
            errors.append(np.abs(image - expected).max() if expected.shape == image.shape else np.inf)
            mirrored.append(flip)
            tops.append(top)
            lefts.append(left)
    counts = {str(n): int((times == n).sum()) for n in sorted(set(times.tolist()))}
    spread = {"top": np.mean(tops), "left": np.mean(lefts), "farthest": np.ptp(tops) + np.ptp(lefts)}
    figures = {"mirrored": np.mean(mirrored), **spread, "error": np.max(errors)}
    return Audit(contestant, shape, dtype, "NHWC", counts, {name: float(value) for name, value in figures.items()})
