"""cifar_tf: images in memory with tf.data.

Batched, a gather of lines and then one of columns is the cheapest of six ways to crop that were tried; one gather of
pixels, and projective transformations, took 1.1 to 1.5 times as much CPU time.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.cifar_data import MEAN, PAD, SIDE, STD, data
from benchmarks.job import Job

__all__ = ["passes"]


def passes(job: Job, batched: bool) -> Callable[[], Iterator[tuple[Any, Any]]]:
    """Make the chain; each call of the result starts an epoch of float32[N,32,32,3] and int64[N].

    Args:
        batched: whether images are batched first and augmented together.
    """
    tf: Any = importlib.import_module("tensorflow")
    tf.random.set_seed(job.seed)
    mean, scale = np.array(MEAN, np.float32), np.float32(1) / np.array(STD, np.float32)
    side = SIDE + 2 * PAD

    def normalise(image: Any) -> Any:
        return (tf.cast(image, tf.float32) - mean) * scale

    def augment(image: Any, label: Any) -> Any:
        image = tf.image.random_crop(tf.image.pad_to_bounding_box(image, PAD, PAD, side, side), (SIDE, SIDE, 3))
        return normalise(tf.image.random_flip_left_right(image)), label

    def augment_batch(images: Any, labels: Any) -> Any:
        images = tf.pad(images, ((0, 0), (PAD, PAD), (PAD, PAD), (0, 0)))
        start = tf.random.uniform((job.batch, 2), 0, 2 * PAD + 1, tf.int32)
        lines, columns = start[:, :1] + tf.range(SIDE), start[:, 1:] + tf.range(SIDE)
        columns = tf.where(tf.random.uniform((job.batch, 1)) < 0.5, columns[:, ::-1], columns)
        lines = tf.gather(images, lines, axis=1, batch_dims=1)
        return normalise(tf.gather(lines, columns, axis=2, batch_dims=1)), labels

    images, labels = data(job)
    ds = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(images), seed=job.seed)
    if batched:
        ds = ds.batch(job.batch, drop_remainder=True).map(augment_batch, num_parallel_calls=tf.data.AUTOTUNE)
    else:
        ds = ds.map(augment, num_parallel_calls=tf.data.AUTOTUNE).batch(job.batch, drop_remainder=True)
    ds = ds.prefetch(tf.data.AUTOTUNE)
    return lambda: iter(ds.as_numpy_iterator())
