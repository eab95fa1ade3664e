"""alike: whether an image processor gives the pixels of the function that was made from its settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpupipe.graph.op import Array
from gpupipe.ops._shared.image_processors import WHO
from gpupipe.ops._shared.recipe import refuse

__all__ = ["check_alike"]

SIZES = ((90, 317), (801, 533))
"""Of the images: a broad one that most processors enlarge, and a tall one that most shrink; for others it is larger."""

ROOM = 1.3
"""How much larger than the result, as antialiasing shows only in what shrinks."""

MOST, MEAN = 4.0, 0.5
"""Levels of 0..255 by which results of one law differ at most and on average: PyTorch rounds sums elsewhere, and Pillow
may resize the height first, which a bicubic kernel enlarges. Half a pixel makes tens of levels."""


def check_alike(processor: Any, made: Callable[[Any], Any]) -> None:
    """Run a processor and its function on drawn images, and compare.

    Raises:
        PlanError: the processor fails, or gives another shape, or values that differ by more than rounding.
    """
    broad, tall = SIZES
    flat = [np.full((*broad, 3), level, np.uint8) for level in (0, 255)]
    grown = np.array(made(np.zeros((*tall, 3), np.uint8)).shape[1:]) * ROOM
    drawn = [_drawn(*broad), _drawn(*np.maximum(tall, grown).astype(int).tolist())]
    ours = [np.asarray(made(image), np.float64) for image in (*flat, *drawn)]
    level = np.abs(ours[1] - ours[0]).max() / 255
    for image, mine, (most, mean) in zip(
        (*flat, *drawn), ours, ((0.01, 0.01), (0.01, 0.01), (MOST, MEAN), (MOST, MEAN)), strict=True
    ):
        _compare(processor, image, mine, most * level, mean * level)


def _compare(processor: Any, image: Array, mine: Array, most: float, mean: float) -> None:
    """Compare one result with what a function made of the same image.

    Raises:
        PlanError: the shape is another, or the values differ by more at most or on average.
    """
    name, theirs = type(processor).__name__, _pixels(processor, image)
    size = f"an image of {image.shape[0]}x{image.shape[1]}"
    if theirs.shape != mine.shape:
        what = f"{name}, which makes {list(theirs.shape)} of {size} where its settings say {list(mine.shape)}"
        refuse(WHO, what, "call ops in its place")
    off = np.abs(theirs - mine)
    if not (off.max() <= most and off.mean() <= mean):
        what = f"{name}, which makes other pixels of {size} than its settings say (up to {off.max():.3g} off)"
        refuse(WHO, what, "call ops in its place")


def _pixels(processor: Any, image: Array) -> Array:
    """What a processor makes of one image.

    Raises:
        PlanError: it fails, or makes no array.
    """
    name = type(processor).__name__
    try:
        made: Array = np.asarray(processor(image, return_tensors="np")["pixel_values"][0], np.float64)
    except Exception as error:  # whatever it raises: it cannot be compared
        refuse(WHO, f"{name}, which makes no pixel_values of an image ({error!r})", "call ops in its place")
    return made


def _drawn(height: int, width: int) -> Array:
    """An image of waves and noise far from black and white, where kernels that overshoot would be cut off."""
    y, x = np.mgrid[:height, :width].astype(np.float64)
    waves = np.stack([np.sin(x / step + y / (step + 3)) for step in (5, 11, 17)], axis=2)
    noise = np.random.default_rng(0).integers(-20, 21, (height, width, 3))
    return (128 + 40 * waves + noise).astype(np.uint8)
