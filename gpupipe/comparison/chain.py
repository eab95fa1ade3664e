"""chain: the training chain of the README, over TFRecord files or over a folder of JPEG files."""

from __future__ import annotations

import os
from typing import Any

from gpupipe import io, ops
from gpupipe.comparison.source import Source
from gpupipe.dataset import Dataset, TFRecordDataset
from gpupipe.options import AUTOTUNE

__all__ = ["training_chain"]

SHUFFLE_BUFFER = 10_000
SEED = 1


def training_chain(source: Source, images: int, batch: int, size: int) -> Dataset:
    """Build the chain, without reading anything.

    Args:
        source: TFRecord files, or JPEG files with labels.
        images: how many images to use at most.
        batch: images per batch; a remainder is dropped.
        size: pixels per side of the random resized crop.

    Returns:
        A dataset of (float32[batch,size,size,3]{NHWC} normalised with ImageNet's mean and deviation, int64[batch]).
    """

    def augment(jpeg: Any) -> Any:
        image = ops.decode_jpeg(jpeg, channels=3)
        image = ops.random_resized_crop(image, (size, size))
        image = ops.random_flip_left_right(image)
        return ops.normalize(image, mean=ops.IMAGENET_MEAN, std=ops.IMAGENET_STD)

    def from_record(record: Any) -> Any:
        x = io.parse_single_example(
            record,
            {
                "image/encoded": io.FixedLenFeature((), bytes),
                "image/class/label": io.FixedLenFeature((), "int64", default_value=-1),
            },
        )
        return augment(x["image/encoded"]), x["image/class/label"]

    def from_file(path: Any, label: Any) -> Any:
        return augment(io.read_file(path)), label

    if source.patterns:
        files = Dataset.list_files(list(source.patterns), seed=SEED)
        elements = files.interleave(TFRecordDataset, cycle_length=8, num_parallel_calls=AUTOTUNE).take(images)
        examples = elements.shuffle(SHUFFLE_BUFFER, seed=SEED).map(from_record, num_parallel_calls=AUTOTUNE)
    else:
        pairs = Dataset.from_tensor_slices((list(map(os.fsencode, source.paths)), list(source.labels)))
        examples = pairs.shuffle(SHUFFLE_BUFFER, seed=SEED).map(from_file, num_parallel_calls=AUTOTUNE)
    return examples.batch(batch, drop_remainder=True).prefetch(AUTOTUNE)
