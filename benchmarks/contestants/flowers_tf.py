"""flowers_tf: a folder of classes with tf.data, by hand or with Keras' `image_dataset_from_directory`."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.job import FLOWER, SHIFT, Job

__all__ = ["passes"]


def passes(job: Job, keras: bool) -> Callable[[], Iterator[tuple[Any, Any]]]:
    """Make the chain; each call of the result starts an epoch of float32[N,180,180,3] in 0..1 and int[N]."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tf: Any = importlib.import_module("tensorflow")
    tf.random.set_seed(job.seed)
    ds = (_keras if keras else _by_hand)(tf, job)
    options = tf.data.Options()
    options.threading.private_threadpool_size = job.threads
    ds = ds.prefetch(2).with_options(options)
    return lambda: iter(ds)


def _by_hand(tf: Any, job: Job) -> Any:
    """As in TensorFlow's guide to loading images: uint8 images are cached, then shuffled whole."""
    folder = Path(job.files[0])
    classes = sorted(path.name for path in folder.iterdir())
    files = [(str(path), label) for label, name in enumerate(classes) for path in sorted((folder / name).iterdir())]
    side = FLOWER + 2 * SHIFT

    def decode(path: Any, label: Any) -> Any:
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        return tf.cast(tf.image.resize(image, (FLOWER, FLOWER)), tf.uint8), label

    def augment(image: Any, label: Any) -> Any:
        padded = tf.image.pad_to_bounding_box(tf.image.random_flip_left_right(image), SHIFT, SHIFT, side, side)
        return tf.image.random_crop(padded, (FLOWER, FLOWER, 3)), label

    def scale(image: Any, label: Any) -> Any:
        return tf.cast(image, tf.float32) / 255.0, label

    paths, labels = zip(*files, strict=True)
    ds = tf.data.Dataset.from_tensor_slices((list(paths), list(labels)))
    ds = ds.map(decode, num_parallel_calls=tf.data.AUTOTUNE).cache().shuffle(len(files))
    if job.chain == "augmented":
        ds = ds.map(augment, num_parallel_calls=tf.data.AUTOTUNE)
    return ds.map(scale, num_parallel_calls=tf.data.AUTOTUNE).batch(job.batch)


def _keras(tf: Any, job: Job) -> Any:
    """As in Keras' and TensorFlow's tutorials: float32 batches are cached and shuffled, preprocessing layers follow."""
    layers = tf.keras.layers
    steps = [layers.Rescaling(1 / 255.0)]
    if job.chain == "augmented":
        part = SHIFT / FLOWER
        shift = layers.RandomTranslation(part, part, fill_mode="constant", fill_value=0.0, seed=job.seed)
        steps = [layers.RandomFlip("horizontal", seed=job.seed), shift, *steps]
    model = tf.keras.Sequential(steps)
    ds = tf.keras.utils.image_dataset_from_directory(
        job.files[0], image_size=(FLOWER, FLOWER), batch_size=job.batch, seed=job.seed, verbose=False
    )
    ds = ds.cache().shuffle(1000)
    return ds.map(lambda images, labels: (model(images, training=True), labels), num_parallel_calls=tf.data.AUTOTUNE)
