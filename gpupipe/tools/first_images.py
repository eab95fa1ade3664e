"""first_images: the images that a dataset of the user's gives first, epoch by epoch, as pixels that can be shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from gpupipe.dataset import Dataset
from gpupipe.errors import DataError, PlanError
from gpupipe.structure import flatten

from ..classes import dataclass

__all__ = ["Leaf", "first_images"]

Array = npt.NDArray[Any]
CHANNELS = (1, 3, 4)
SMALLEST = 8
"""Pixels per side below which an array without a layout is not taken for an image."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf of a dataset's elements that holds images.

    Attributes:
        name: as a user writes it, ``"['image']"``; "" if elements are one leaf.
        epochs: for each epoch the first images, uint8[H,W,3]{HWC}.
        shown: how numbers became bytes, in words.
    """

    name: str
    epochs: Sequence[Sequence[npt.NDArray[np.uint8]]]
    shown: str


def first_images(dataset: Dataset, rows: int, epochs: int, progress: Callable[[int, int], None]) -> list[Leaf]:
    """Take the images of the first elements in several epochs. A batch is as many elements as it has rows.

    Args:
        dataset: any; its options choose the executor.
        rows: how many elements to take at most, in each epoch.
        epochs: how many epochs, from 0 on.
        progress: called with the number of elements taken, and of all.

    Raises:
        PlanError: no leaf holds images, or the epoch of the dataset is fixed.
        DataError: the dataset is empty.
    """
    taken: dict[str, list[list[Array]]] = {}
    for epoch in range(epochs):
        for number, images in enumerate(islice(_rows(dataset, epoch), rows), 1):
            for name, image in images.items():
                taken.setdefault(name, [[] for _ in range(epochs)])[epoch].append(image)
            progress(epoch * rows + number, epochs * rows)
    if not taken:
        raise DataError("preview needs a dataset with elements, got an empty one")
    return [_leaf(name, images) for name, images in taken.items()]


def _rows(dataset: Dataset, epoch: int) -> Iterator[dict[str, Array]]:
    """The images of each element, or of each row of each batch, by the names of their leaves."""
    with dataset.epoch(epoch).as_numpy_iterator() as elements:
        for element in elements:
            leaves, structure = flatten(element)
            found = {n: _images(x) for n, x in zip(structure.leaf_names(), leaves, strict=True)}
            images = {name: rows for name, rows in found.items() if rows}
            if not images:
                spec = dataset.element_spec
                raise PlanError(f"preview needs a dataset with images, arrays[H,W,C] or [C,H,W], got elements {spec}")
            for index in range(min(map(len, images.values()))):
                yield {name: rows[index] for name, rows in images.items()}


def _images(leaf: Any) -> list[Array]:
    """The images {HWC} in a leaf: one, or one for each row of a batch; none if it holds something else."""
    if isinstance(leaf, list):
        return [image for row in leaf for image in _images(row)]
    if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in "buif" or leaf.ndim not in (3, 4):
        return []
    height, width, channels = leaf.shape[-3:]
    if channels in CHANNELS and min(height, width) >= SMALLEST:
        image = leaf
    elif height in CHANNELS and min(width, channels) >= SMALLEST:
        image = np.moveaxis(leaf, -3, -1)
    else:
        return []
    return list(image) if leaf.ndim == 4 else [image]


def _leaf(name: str, epochs: Sequence[Sequence[Array]]) -> Leaf:
    """Make bytes of the images of a leaf, of all of them in the same way."""
    images = [image for epoch in epochs for image in epoch]
    kind = images[0].dtype
    finite = [part for image in images if (part := image[np.isfinite(image)]).size]
    low = min((float(part.min()) for part in finite), default=0.0)
    high = max((float(part.max()) for part in finite), default=0.0)
    if kind == np.uint8:
        scale, zero, shown = 1.0, 0.0, "as they are"
    elif low >= 0 and high <= 1:
        scale, zero, shown = 255.0, 0.0, f"{kind} in 0..1, shown as 0..255"
    elif low >= 0 and high <= 255:
        scale, zero, shown = 1.0, 0.0, f"{kind} in 0..255, rounded"
    else:  # normalised: the original colours are not known
        scale, zero = 255 / ((high - low) or 1), low
        shown = f"{kind}, {low:.2f}..{high:.2f} stretched over 0..255: colours are not those of the originals"
    return Leaf(name, [[_bytes(image, scale, zero) for image in epoch] for epoch in epochs], shown)


def _bytes(image: Array, scale: float, zero: float) -> npt.NDArray[np.uint8]:
    # What is not a number is black.
    pixels = np.clip(np.rint(np.nan_to_num((image.astype(np.float32) - zero) * scale)), 0, 255).astype(np.uint8)
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels[..., :3]
