"""augmented: images of a folder or of other files beside what the README's chain makes of them in several epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from gpupipe import ops
from gpupipe.comparison.elements import elements_of, encoded
from gpupipe.comparison.source import Source
from gpupipe.dataset import Dataset
from gpupipe.spec import TensorSpec

from ..classes import dataclass

__all__ = ["Draw", "Example", "Window", "augmentations"]

Image = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Window:
    """The part of an original that a draw shows, in pixels of the original.

    Attributes:
        top: first row.
        left: first column.
        height: in rows.
        width: in columns.
        mirrored: whether the draw shows it mirrored left-right.
    """

    top: int
    left: int
    height: int
    width: int
    mirrored: bool


@dataclass(frozen=True, slots=True)
class Draw:
    """One augmentation of an image.

    Attributes:
        epoch: that draws it.
        image: uint8[size,size,3]{HWC}, before normalisation.
        window: where in the original it comes from.
    """

    epoch: int
    image: Image
    window: Window


@dataclass(frozen=True, slots=True)
class Example:
    """An image and its augmentations.

    Attributes:
        original: uint8[H,W,3]{HWC}, as decoded.
        label: its class, -1 where the data has none.
        draws: one for each epoch.
    """

    original: Image
    label: int
    draws: tuple[Draw, ...]


def augmentations(
    source: Source, images: int, epochs: int, size: int, progress: Callable[[int, int], None]
) -> list[Example]:
    """Draw what `compare.chain.training_chain` draws of the first images in its first epochs.

    Its crops and flips depend on seed, epoch and identity alone, so they are the same without its shuffle. Coordinates
    of pixels take the same way as the image, which tells the window, whatever the executor.

    Args:
        source: the files.
        images: how many to take at most, >= 1.
        epochs: how many draws of each, >= 1.
        size: pixels per side of a draw.
        progress: called with the number of draws made, and of all.
    """
    chain = _chain(source, images, size)
    originals: list[tuple[Image, int]] = []
    draws: list[list[Draw]] = []
    done = 0
    for epoch in range(epochs):
        for index, (original, image, where, label) in enumerate(_on_host(chain, epoch)):
            if not epoch:
                originals.append((original, int(label)))
                draws.append([])
            draws[index].append(Draw(epoch, image, _window(where)))
            done += 1
            progress(done, images * epochs)
    return [Example(image, label, tuple(d)) for (image, label), d in zip(originals, draws, strict=True)]


def _chain(source: Source, images: int, size: int) -> Dataset:
    def augment(image: Any) -> tuple[Any, Any, Any]:
        original = ops.decode_jpeg(image, channels=3)
        spec = TensorSpec((None, None, 2), np.float32, layout="HWC")
        both = original, ops.py_function(_coordinates, (original,), spec=spec)
        image, where = ops.random_flip_left_right(ops.random_resized_crop(both, (size, size)))
        return original, image, where

    return elements_of(source, images).map(encoded(source, augment))


def _on_host(chain: Dataset, epoch: int) -> Iterator[Any]:
    with chain.iterator(epoch=epoch) as elements:
        yield from elements


def _coordinates(image: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """The row and the column of every pixel: float32[H,W,2]."""
    rows, columns = np.indices(image.shape[:2], np.float32)
    return np.stack([rows, columns], axis=-1)


def _window(where: npt.NDArray[Any]) -> Window:
    """The window that coordinates were cut from: they grow evenly inside, whatever the filter does at the edges."""
    middle = len(where) // 2
    top, height = _extent(where[:, middle, 0])
    left, width = _extent(where[middle, :, 1])
    start = left + width if width < 0 else left
    return Window(round(top), round(start), round(height), round(abs(width)), width < 0)


def _extent(line: npt.NDArray[Any]) -> tuple[float, float]:
    """Where a resized line of coordinates begins, and how long it was; negative if it runs backwards."""
    count = len(line)
    first, last = count // 4, count - 1 - count // 4
    step = (float(line[last]) - float(line[first])) / (last - first)
    return float(line[first]) + 0.5 - (first + 0.5) * step, step * count
