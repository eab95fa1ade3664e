"""probe: images that encode their own coordinates, and what they tell about a pipeline that processed them.

No contestant is asked which crops it drew: they are read off its output. In a probe, red grows linearly from left to
right (0 to 255), green from top to bottom, and blue has vertical stripes with a period of four pixels around 128. After
crop, resize, flip and normalise, the slope of red along x, times the output's width, is the fraction of the width
inside the window; its sign is the flip; green gives the fraction of the height. The contrast left of the stripes tells
the resize filter: when an image shrinks, antialiasing removes them. The blue mean is 128 only if mean and std were
applied as agreed.
"""

from __future__ import annotations

import io
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.job import IMAGENET_MEAN, IMAGENET_STD, SIZE, Audit
from benchmarks.tfrecord import example, write_record

__all__ = ["audit_images", "audit_records", "measure", "probe_jpeg", "write_damaged", "write_probes"]

_PERIOD = 4  # pixels
_DEPTH = 60.0  # of the stripes, in levels
_WIDE = 0.85  # contrast is read in windows of at least this fraction of the width: 1.4 to 2.2 pixels become one

Floats = npt.NDArray[np.float64]


def probe_jpeg(height: int, width: int) -> bytes:
    """Encode the probe image of that size."""
    from PIL import Image

    x, y = np.arange(width) + 0.5, np.arange(height) + 0.5
    pixels = np.empty((height, width, 3))
    pixels[..., 0] = 255 * x / width
    pixels[..., 1] = 255 * y[:, None] / height
    pixels[..., 2] = 128 + _DEPTH * np.cos(2 * np.pi * x / _PERIOD)
    out = io.BytesIO()
    Image.fromarray(np.rint(pixels).astype(np.uint8)).save(out, "JPEG", quality=98, subsampling=0)
    return out.getvalue()


def write_probes(folder: Path, count: int = 512, shards: int = 8) -> list[Path]:
    """Write `count` probes labelled 0, 1, 2 ... as shards, with sizes of ImageNet, one in four portrait."""
    lying, upright = probe_jpeg(375, 500), probe_jpeg(500, 375)
    paths = [folder / f"probe-{i:05d}-of-{shards:05d}.tfrecord" for i in range(shards)]
    for i, path in enumerate(paths):
        with path.open("wb") as file:
            for label in range(i, count, shards):
                write_record(file, example(upright if label // shards % 4 == 3 else lying, label))
    return paths


def write_damaged(folder: Path, count: int = 256) -> Path:
    """Write a shard whose middle record has a wrong checksum but is otherwise intact."""
    path, jpeg = folder / "damaged-00000-of-00001.tfrecord", probe_jpeg(375, 500)
    with path.open("wb") as file:
        for label in range(count):
            write_record(file, example(jpeg, label), damaged=label == count // 2)
    return path


def measure(images: npt.NDArray[Any], normalised: bool = True) -> tuple[Floats, Floats, npt.NDArray[np.bool_], Floats]:
    """Read off a batch of finished probes.

    Shapes: ``float32[B,224,224,3]{NHWC}``, `normalised` or as decoded ``-> share float64[B], contrast float64[B] (NaN
    where the image did not shrink enough), flipped bool[B], level float64[B]``
    """
    pixels = images.astype(np.float64)
    if normalised:
        pixels = pixels * IMAGENET_STD + IMAGENET_MEAN
    inner = slice(2, -2)  # the edge rules of resize filters differ in the outermost pixels
    red = pixels[:, inner, inner, 0].mean(1)
    green = pixels[:, inner, inner, 1].mean(2)
    blue = pixels[:, inner, inner, 2].mean(1)
    at = np.arange(red.shape[1]) - (red.shape[1] - 1) / 2
    slope = at / (at @ at)
    across, down = red @ slope * SIZE / 255, green @ slope * SIZE / 255
    share = np.abs(across * down)
    contrast = np.where(np.abs(across) >= _WIDE, blue.var(1) / (_DEPTH**2 / 2), np.nan)
    return share, contrast, across < 0, blue.mean(1)


def audit_images(contestant: str, batches: Iterable[tuple[Any, Any]], normalised: bool = True) -> Audit:
    """Describe the output of one pass over the probes, `normalised` or as decoded.

    Raises:
        ValueError: if there is no batch, or the images are not 224x224 with three channels.
    """
    seen: Counter[int] = Counter()
    parts: list[tuple[Any, ...]] = []
    shape: tuple[int, ...] = ()
    dtype = layout = ""
    for images, labels in batches:
        array = host(images)
        shape, dtype, layout = array.shape, str(array.dtype), _layout(contestant, array.shape)
        parts.append(measure(array if layout == "NHWC" else array.transpose(0, 2, 3, 1), normalised))
        seen.update(host(labels).reshape(-1).tolist())
    if not parts:
        raise ValueError(f"the audit of {contestant} needs batches, got none; does it read the files it is given?")
    share, contrast, flipped, level = (np.concatenate(column) for column in zip(*parts, strict=True))
    figures = {"share": share, "contrast": contrast[~np.isnan(contrast)], "flipped": flipped * 1.0, "level": level}
    figures = {name: values for name, values in figures.items() if values.size}
    return Audit(
        contestant=contestant,
        shape=shape,
        dtype=dtype,
        layout=layout,
        counts=_counts(seen),
        figures={name: round(float(values.mean()), 5) for name, values in figures.items()},
        errors={name: round(float(values.std() / len(values) ** 0.5), 5) for name, values in figures.items()},
    )


def audit_records(contestant: str, batches: Iterable[tuple[Any, Any]]) -> Audit:
    """Describe one pass of (encoded, labels) batches by a sum over all payloads, in any order."""
    seen: Counter[int] = Counter()
    size = digest = 0
    shape: tuple[int, ...] = ()
    for encoded, labels in batches:
        rows = host(encoded)
        shape = rows.shape
        seen.update(host(labels).reshape(-1).tolist())
        for row in rows.tolist():
            size, digest = size + len(row), digest + zlib.crc32(row)
    return Audit(
        contestant=contestant,
        shape=shape,
        dtype="bytes",
        layout="records",
        counts=_counts(seen),
        figures={"bytes": float(size), "digest": float(digest)},  # below 2**53: exact
    )


def host(array: Any) -> npt.NDArray[Any]:
    """Convert an array of any contestant's library to NumPy."""
    if hasattr(array, "as_cpu"):  # DALI on the GPU
        array = array.as_cpu()
    elif hasattr(array, "get"):  # CuPy's, or gpupipe's if CuPy is missing
        array = array.get()
    return np.asarray(array)


def _layout(contestant: str, shape: tuple[int, ...]) -> str:
    if shape[1:] == (SIZE, SIZE, 3):
        return "NHWC"
    if shape[1:] == (3, SIZE, SIZE):
        return "NCHW"
    raise ValueError(f"the audit of {contestant} needs images [B,{SIZE},{SIZE},3], got {shape}; resize to {SIZE}")


def _counts(seen: Counter[int]) -> dict[str, int]:
    """Turn {label: times} into {times: labels}."""
    return {str(times): labels for times, labels in sorted(Counter(seen.values()).items())}
