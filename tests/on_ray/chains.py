"""Chains that Ray workers run in tests, and what is compared."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

import gpupipe as gp
from gpupipe import ops
from tests.tools.damage import write

FEATURES = {"image": gp.io.FixedLenFeature((), bytes), "label": gp.io.FixedLenFeature((), "int64")}


def write_images(folder: Path, files: int = 3, each: int = 32) -> None:
    """Records of small JPEGs, and their manifest."""
    from gpupipe.comparison.photographs import encode
    from gpupipe.extract.records.manifest_writer import write_manifest

    rng = np.random.default_rng(0)
    paths = [folder / f"{file}.tfrecord" for file in range(files)]
    for file, path in enumerate(paths):
        jpegs = [encode(rng.integers(0, 255, (48, 64, 3), np.uint8)) for _ in range(each)]
        write(path, [gp.io.encode_example({"image": x, "label": file * each + i}) for i, x in enumerate(jpegs)])
    write_manifest(list(map(str, paths)), str(folder / "files.gpindex"), 1)


def example(record: Any) -> Any:
    """A random crop, uint8[32, 32, 3], and its label."""
    x = gp.io.parse_single_example(record, FEATURES)
    image = ops.random_resized_crop(ops.decode_jpeg(x["image"], channels=3), (32, 32))
    return ops.random_flip_left_right(image), x["label"]


def normalized(record: Any) -> Any:
    """The same in float32."""
    image, label = example(record)
    return ops.normalize(image, mean=ops.IMAGENET_MEAN, std=ops.IMAGENET_STD), label


def images(folder: Path) -> gp.Dataset:
    """12 batches of 8."""
    files = gp.Dataset.list_files(f"{folder}/*.tfrecord", shuffle=False)
    records = files.interleave(gp.TFRecordDataset, cycle_length=3).shuffle(gp.ALL, seed=1)
    return records.map(example).batch(8, drop_remainder=True).prefetch(1).with_options(gp.Options(device="cpu"))


def listed_images(folder: Path) -> gp.Dataset:
    """12 batches of 8, of the manifest, shuffled in streams."""
    records = gp.TFRecordDataset.from_manifest(f"{folder}/files.gpindex").shuffle(gp.ALL, seed=1, streams=2, window=8)
    return records.map(normalized).batch(8, drop_remainder=True).with_options(gp.Options(device="cpu"))


def drawn(x: Any, rng: np.random.Generator) -> Any:
    """An element with random numbers of its own, like a random crop."""
    return np.array([float(int(x)), rng.random()])


def numbers(count: int = 400, batch: int = 8, fn: Any = drawn) -> gp.Dataset:
    """Batches of numbers and random ones."""
    shuffled = gp.Dataset.range(count).shuffle(gp.ALL, seed=1)
    return shuffled.map(fn, rng=True).batch(batch).prefetch(2).with_options(gp.Options(device="cpu", threads=1))


class Noted:
    """`drawn`, slowly; leaves a file for each element, which names the process."""

    def __init__(self, folder: Path, seconds: float = 0.0, size: int = 2) -> None:
        self.folder, self.seconds, self.size = str(folder), seconds, size

    def __call__(self, x: Any, rng: np.random.Generator) -> Any:
        """The number, a random one, and zeros."""
        time.sleep(self.seconds)
        Path(self.folder, f"{int(x)}-{os.getpid()}-{time.monotonic_ns()}").touch()
        return np.pad(drawn(x, rng), (0, self.size - 2))

    def pids(self) -> set[int]:
        """The processes that made elements."""
        return {int(name.split("-")[1]) for name in os.listdir(self.folder)}

    def made(self) -> set[int]:
        """The elements that were made."""
        return {int(name.split("-")[0]) for name in os.listdir(self.folder)}


def write_damaged(folder: Path) -> None:
    """64 records of numbers, some of which have a wrong checksum."""
    path = folder / "damaged.tfrecord"
    data = bytearray(write(path, [np.int64(i).tobytes() for i in range(64)]))
    for i in (0, 13, 16, 17, 37):
        data[(12 + 8 + 4) * i + 12] ^= 1
    path.write_bytes(data)


def damaged(folder: Path) -> gp.Dataset:
    """8 batches of 8 numbers from the records of `write_damaged`."""
    files = gp.Dataset.list_files(f"{folder}/damaged.tfrecord", shuffle=False)
    records = files.interleave(gp.TFRecordDataset)
    return records.map(number).batch(8, drop_remainder=True).with_options(gp.Options(device="cpu", threads=1))


def number(record: Any) -> Any:
    """A record of 8 bytes as a number."""
    return np.frombuffer(record, np.int64)[0]


def odd(x: Any) -> Any:
    """Leaves of all kinds, whose types only the first element tells."""
    n = int(x)
    rows = np.arange(n % 3, dtype=np.float32)
    return {"text": b"x" * n, "rows": rows, "pair": (n, bool(n % 2)), "half": np.float16(n)}


def ragged(batch: Any) -> Any:
    """A batch of numbers as ragged rows, and their sum."""
    lengths = batch % 4
    return {"rows": gp.Ragged(np.repeat(batch, lengths), np.cumsum([0, *lengths])), "sum": batch.sum()}


def digest(element: Any) -> str:
    """An element by kinds, dtypes, shapes and bytes."""
    return hashlib.blake2b(repr(_plain(element)).encode(), digest_size=8).hexdigest()


def _plain(x: Any) -> Any:
    if isinstance(x, gp.Ragged):
        return "ragged", _plain(x.values), _plain(x.row_splits)
    if isinstance(x, dict):
        return {name: _plain(value) for name, value in x.items()}
    if isinstance(x, (tuple, list)):
        return type(x).__name__, [_plain(one) for one in x]
    if isinstance(x, np.ndarray) and x.dtype == object:
        return x.shape, [_plain(one) for one in x.flat]
    if isinstance(x, (np.ndarray, np.generic)):
        return type(x).__name__, str(x.dtype), x.shape, x.tobytes()
    return type(x).__name__, x


def digests(items: Any) -> list[str]:
    """Every element that is left; errors by their text."""
    found: list[str] = []
    while True:
        try:
            found.append(digest(next(items)))
        except StopIteration:
            return found
        except gp.DataError as error:
            found.append(str(error))
