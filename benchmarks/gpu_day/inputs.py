"""inputs: the images that parts work on, all drawn here, and the chain of the README over them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu_day.day import Day
from benchmarks.job import SIZE

__all__ = ["chain", "damaged", "drawn", "kinds", "photographs", "sums"]

_DRAWN = range(48)
_IN_A_DRY_RUN = (2, 8, 11, 17)
"""Those of them with the most and the fewest rows and columns, so that a window that is outside of one is seen."""
_KINDS: Mapping[str, Mapping[str, Any]] = {
    "4:4:4": {"subsampling": 0},
    "4:2:2": {"subsampling": 1},
    "4:2:0": {"subsampling": 2},
    "gray": {"mode": "L"},
    "progressive": {"progressive": True, "subsampling": 2},
    "cmyk": {"mode": "CMYK"},
    "restarts": {"restart_marker_blocks": 8},
}
"""Kinds of JPEG, as Pillow writes them."""


def drawn(day: Day) -> Sequence[int]:
    """Return the numbers of the photographs that are drawn."""
    return _IN_A_DRY_RUN if day.dry else _DRAWN


def photographs(day: Day, count: int) -> list[bytes]:
    """Return `count` photographs as JPEG files, of ImageNet's sizes and kinds; few are drawn, and repeat."""
    from gpupipe.comparison.photographs import encode, take

    made = []
    for number in drawn(day)[:count]:
        path = Path(day.folder, f"photograph-{number}.jpg")
        if not path.exists():
            shot, pixels = take(number)
            half = path.with_suffix(".half")
            half.write_bytes(encode(pixels, shot.quality, shot.subsampling, shot.progressive))
            half.replace(path)
        made.append(path.read_bytes())
    return [made[i % len(made)] for i in range(count)]


def kinds(day: Day) -> dict[str, list[bytes]]:
    """Return a few photographs as JPEGs of every kind."""
    from PIL import Image

    pictures = [Image.open(io.BytesIO(data)).convert("RGB") for data in photographs(day, day.some(12, 2))]
    return {name: [_written(picture, **how) for picture in pictures] for name, how in _KINDS.items()}


def _written(picture: Any, mode: str = "RGB", **how: Any) -> bytes:
    out = io.BytesIO()
    picture.convert(mode).save(out, "JPEG", quality=92, **how)
    return out.getvalue()


def damaged(good: bytes) -> dict[str, bytes]:
    """Damage a JPEG in several ways."""
    half, tables = good[: len(good) // 2], good.index(b"\xff\xc4")
    return {
        "cut in half": half,
        "cut in half, with an end": half + b"\xff\xd9",
        "Huffman tables": good[: tables + 4] + b"\xff" * 16 + good[tables + 20 :],
        "noise": np.random.default_rng(0).bytes(5000),
        "one byte": b"x",
        "flipped bits": bytes(c ^ (0x40 if i % 997 == 500 else 0) for i, c in enumerate(good)),
    }


def chain(day: Day, files: Sequence[bytes], labels: bool = True, cached: bool = False, **options: Any) -> Any:
    """Make the chain of the README from memory: batches of (float32[B,224,224,3]{NHWC}, int64[B]), prefetched.

    Without `labels`, batches of images alone. If `cached`, the images stay decoded, on a GPU where the day has one.
    """
    import gpupipe as gp
    from gpupipe import ops

    def decoded(x: Any) -> Any:
        return ops.decode_jpeg(x["encoded"], channels=3), x["label"]

    def train_example(image: Any, label: Any) -> Any:
        image = ops.random_flip_left_right(ops.random_resized_crop(image, (SIZE, SIZE)))
        image = ops.normalize(image, mean=ops.IMAGENET_MEAN, std=ops.IMAGENET_STD)
        return (image, label) if labels else image

    ds = gp.Dataset.from_tensor_slices({"encoded": list(files), "label": np.arange(len(files))}).map(decoded)
    if cached:
        ds = ds.cache(device="gpu") if day.device == "gpu" else ds.cache()
    ds = ds.map(train_example)
    given = {"device": day.device, **options}
    return ds.batch(day.batch, drop_remainder=True).prefetch(2).with_options(gp.Options(**given))


def sums(images: Any, labels: Any) -> tuple[float, int]:
    """Return the sums of a batch, computed on the host, to tell batches apart."""
    from benchmarks.probe import host

    return float(host(images).sum(dtype=np.float64)), int(host(labels).sum())
