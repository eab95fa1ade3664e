"""chain: the training chain of the README, over TFRecord files, image files, tar archives or Parquet files."""

from __future__ import annotations

from typing import Any

from gpupipe import ops
from gpupipe.comparison.elements import elements_of, encoded
from gpupipe.comparison.source import Source
from gpupipe.dataset import Dataset
from gpupipe.options import AUTOTUNE

__all__ = ["training_chain"]

SHUFFLE_BUFFER = 10_000
SEED = 1


def training_chain(source: Source, images: int, batch: int, size: int) -> Dataset:
    """Build the chain, without reading anything but the columns of Parquet files.

    Args:
        source: the files.
        images: how many images to use at most.
        batch: images per batch; a remainder is dropped.
        size: pixels per side of the random resized crop.

    Returns:
        A dataset of (float32[batch,size,size,3]{NHWC} normalised with ImageNet's mean and deviation, int64[batch]).
    """

    def augment(image: Any) -> tuple[Any]:
        image = ops.decode_jpeg(image, channels=3)
        image = ops.random_resized_crop(image, (size, size))
        image = ops.random_flip_left_right(image)
        return (ops.normalize(image, mean=ops.IMAGENET_MEAN, std=ops.IMAGENET_STD),)

    elements = elements_of(source, images, SEED).shuffle(SHUFFLE_BUFFER, seed=SEED)
    examples = elements.map(encoded(source, augment), num_parallel_calls=AUTOTUNE)
    return examples.batch(batch, drop_remainder=True).prefetch(AUTOTUNE)
