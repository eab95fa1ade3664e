"""flowers_gpupipe: a folder of classes with gpupipe; decoded images are cached, every pass draws anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.job import FLOWER, SHIFT, Job

__all__ = ["passes"]


def passes(job: Job, backend: Any) -> Callable[[], Iterator[tuple[Any, Any]]]:
    """Make the chain; each call of the result starts an epoch of float32[N,180,180,3] in 0..1 and int64[N]."""
    import gpupipe as gp
    from gpupipe import ops

    def decode(encoded: Any, label: Any) -> Any:
        return ops.cast(ops.resize(ops.decode_jpeg(encoded, channels=3), (FLOWER, FLOWER)), "uint8"), label

    def augment(image: Any, label: Any) -> Any:
        side = FLOWER + 2 * SHIFT
        padded = ops.pad_to_bounding_box(ops.random_flip_left_right(image), SHIFT, SHIFT, side, side)
        return ops.random_crop(padded, (FLOWER, FLOWER, 3)), label

    def scale(image: Any, label: Any) -> Any:
        return ops.cast(image, "float32") / 255.0, label

    ds: gp.Dataset = gp.image_folder(job.files[0]).map(decode).cache().shuffle(gp.ALL, seed=job.seed)
    if job.chain == "augmented":
        ds = ds.map(augment)
    options = gp.Options(seed=job.seed, device="cpu", backend=backend, threads=job.threads)
    ds = ds.map(scale).batch(job.batch).prefetch(2).with_options(options)
    return ds.__iter__
