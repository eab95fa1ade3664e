"""uncropped_tf: whole images to one size in tf.data, see `uncropped_gpupipe`; nothing is rounded after the resize."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from benchmarks.contestants.tf_chain import features, records
from benchmarks.contestants.uncropped_gpupipe import Form
from benchmarks.job import IMAGENET_MEAN, IMAGENET_STD, SIDE, SIZE, Job

__all__ = ["batches"]


def batches(job: Job, form: Form) -> Iterator[tuple[Any, Any]]:
    """Yield one pass of (images, labels) as TensorFlow tensors."""
    tf: Any = importlib.import_module("tensorflow")
    source, wanted = records(tf, job), features(tf)
    mean, scale = tf.constant(IMAGENET_MEAN), 1 / tf.constant(IMAGENET_STD)

    def finished(record: Any) -> tuple[Any, Any]:
        x = tf.io.parse_single_example(record, wanted)
        image = tf.io.decode_jpeg(x["image/encoded"], channels=3, dct_method="INTEGER_ACCURATE")
        if form == "center":
            sides = tf.shape(image)[:2]
            sides = sides * SIDE // tf.reduce_min(sides)
            top, left = tf.unstack((sides - SIZE) // 2)
            image = tf.image.resize(image, sides, antialias=True)[top : top + SIZE, left : left + SIZE]
            image = tf.ensure_shape(image, [SIZE, SIZE, 3])
        else:
            image = tf.image.resize(image, [SIZE, SIZE], antialias=form == "resize")
        if form != "linear":
            image = tf.transpose((image - mean) * scale, [2, 0, 1])
        return image, x["image/class/label"]

    ds = source.map(finished, num_parallel_calls=tf.data.AUTOTUNE)
    ds = ds.batch(job.batch, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
    options = tf.data.Options()
    options.threading.private_threadpool_size = job.threads
    yield from ds.with_options(options)
