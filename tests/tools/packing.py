"""packing: small folders of images, and what is in shards, for the tests of `pack`."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import gpupipe as gp
from gpupipe.comparison.photographs import encode
from gpupipe.ops._shared.samples import encoded

__all__ = ["FEATURES", "archive", "digests", "folder_of", "jpeg", "packed_records", "png"]

FEATURES: dict[str, Any] = {
    **{f"image/{name}": gp.io.FixedLenFeature((), bytes) for name in ("encoded", "format", "filename")},
    **{f"image/{name}": gp.io.FixedLenFeature((), "int64") for name in ("height", "width")},
    "image/class/label": gp.io.FixedLenFeature((), "int64", default_value=-1),
    "image/class/text": gp.io.FixedLenFeature((), bytes, default_value=b""),
}


def picture(height: int, width: int) -> npt.NDArray[np.uint8]:
    """Slow waves of slowly changing colour, uint8[H,W,3]: 4:2:0 costs little of it. No two corners are alike."""
    y, x = np.ogrid[0.0 : 1.0 : height * 1j, 0.0 : 1.0 : width * 1j]
    waves = 110 + 40 * np.sin(11 * x + 2 * y) + 30 * np.cos(9 * y)
    return np.stack([waves + 60 * x, waves + 0 * x, waves + 60 * y], axis=2).clip(0, 255).astype(np.uint8)


def jpeg(height: int, width: int, number: int = 0, **how: Any) -> bytes:
    """A JPEG whose pixels depend on its number."""
    return encode(np.roll(picture(height, width), 7 * number, axis=1), **how)


def png(height: int, width: int, mode: str = "RGB") -> bytes:
    """A PNG in one of Pillow's modes."""
    return encoded(picture(height, width), "PNG", mode)


def folder_of(root: Path, count: int, classes: int = 3, size: tuple[int, int] = (48, 64)) -> Path:
    """Write JPEGs to class directories ``class0``, ``class1`` and so on; return the folder."""
    for number in range(count):
        path = root / f"class{number % classes}" / f"{number:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(*size, number))
    return root


def packed_records(out: Path) -> list[Mapping[str, Any]]:
    """The features of all records of all shards, in order."""
    return [
        gp.io.parse_single_example(record, FEATURES)
        for path in sorted(out.glob("*.tfrecord"))
        for record in gp.TFRecordDataset(str(path))
    ]


def archive(path: Path, *members: tuple[str, bytes]) -> Path:
    """Write a tar archive."""
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def digests(out: Path) -> dict[str, str]:
    """A digest of each file that `pack` left, but for its journal."""
    paths = sorted(path for path in out.iterdir() if path.name != "pack.jsonl")
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
