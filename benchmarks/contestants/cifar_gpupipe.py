"""cifar_gpupipe: images in memory with gpupipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from benchmarks.cifar_data import MEAN, PAD, SIDE, STD, data
from benchmarks.job import Job

__all__ = ["passes"]


def passes(job: Job, backend: Literal["numpy", "fast", "dali"] = "numpy") -> Callable[[], Iterator[tuple[Any, Any]]]:
    """Make the chain; each call of the result starts an epoch of float32[N,32,32,3] and int64[N]."""
    import gpupipe as gp
    from gpupipe import ops

    def augment(image: Any, label: Any) -> Any:
        padded = ops.pad_to_bounding_box(image, PAD, PAD, SIDE + 2 * PAD, SIDE + 2 * PAD)
        flipped = ops.random_flip_left_right(ops.random_crop(padded, (SIDE, SIDE, 3)))
        return ops.normalize(flipped, MEAN, STD), label

    images, labels = data(job)
    ds: gp.Dataset = gp.Dataset.from_tensor_slices((images, labels)).shuffle(len(images), seed=job.seed)
    ds = ds.map(augment).batch(job.batch, drop_remainder=True).prefetch(2)
    options = gp.Options(seed=job.seed, device="cpu", backend=backend, threads=job.threads)
    return ds.with_options(options).__iter__
