"""A process that is killed: it consumes a chain, and writes down its state behind every batch.

``python -m tests.reliability.consumer CHAIN DATA STATE`` prints ``begin`` and how many elements its state says were
delivered, then for each element its number and a digest of it; and ``state`` once its state is in place. It asks for
each element when a line comes in, so that whoever kills it knows where it is; what is prepared ahead goes on meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import gpupipe as gp
from gpupipe import ops
from tests.chains import damage
from tests.chains.data import parse
from tests.reliability.resume import plain

IMAGES, COUNT = 3, 48  # files, and images in all of them


def write_data(folder: Path) -> None:
    """Shards of small JPEG images: good ones, and some damaged."""
    bad = {5: damage.bad_scan, 6: damage.cut, 21: damage.bad_tables, 22: damage.bomb, 37: damage.bad_scan}
    for name, damaged in (("good", {}), ("bad", bad)):
        (folder / name).mkdir()
        images = [damaged.get(n, bytes)(damage.jpeg(n)) for n in range(COUNT)]
        records = [damage.example(n, image) for n, image in enumerate(images)]
        for i in range(IMAGES):
            damage.write(folder / name / f"{i}.tfrecord", records[i * COUNT // IMAGES : (i + 1) * COUNT // IMAGES])


def crop(record: Any) -> Any:
    encoded, label = parse(record)
    image = ops.random_resized_crop(ops.decode_jpeg(encoded, channels=3), (16, 16))
    return ops.random_flip_left_right(image), label


def slow(x: Any) -> Any:
    time.sleep(0.0005 * (int(x) % 3))
    return np.asarray(x) * 3


def numbers() -> Iterator[Any]:
    for i in range(120):
        yield np.int64(i)


def files(folder: Path, kind: str = "good") -> gp.Dataset:
    return gp.Dataset.list_files(str(folder / kind / "*"), seed=1)


def images(folder: Path, kind: str = "good") -> gp.Dataset:
    return files(folder, kind).interleave(gp.TFRecordDataset, cycle_length=2, num_parallel_calls=2)


def options(backend: Any = "numpy", **more: Any) -> gp.Options:
    return gp.Options(device="cpu", backend=backend, **more)


CHAINS: dict[str, Callable[[Path], gp.Dataset]] = {
    "readers ahead": lambda p: images(p).map(crop).batch(4).prefetch(2).with_options(options()),
    "any order": lambda p: images(p).shuffle(9).map(parse).with_options(options(deterministic=False)),
    "generator": lambda p: (
        gp.Dataset.from_generator(numbers, output_signature=gp.TensorSpec((), "int64")).shuffle(20).batch(5).prefetch(1)
    ),
    "replace": lambda p: (
        images(p, "bad").shuffle(9).map(crop).batch(4).repeat(2).with_options(options(on_error="replace"))
    ),
    "file cache": lambda p: images(p).map(parse).cache(str(p / "cache")).repeat(2).shuffle(9).batch(8),
    "global shuffle": lambda p: (
        gp.TFRecordDataset(files(p)).shuffle(gp.ALL).repeat(2).map(crop).batch(8).with_options(options())
    ),
    "DALI, skip": lambda p: (
        images(p, "bad").shuffle(9).map(crop).batch(4).with_options(options("dali", on_error="skip"))
    ),
}
ANY_ORDER = ("any order",)


def digest(element: Any) -> str:
    """A digest of an element."""
    return hashlib.blake2b(repr(plain(element)).encode(), digest_size=12).hexdigest()


def main(name: str, data: Path, place: Path) -> None:
    with iter(CHAINS[name](data)) as items:
        if place.exists():
            items.load_state_dict(json.loads(place.read_text()))
        print("begin", items.state_dict()["delivered"], flush=True)
        while sys.stdin.readline():
            try:
                element = next(items)
            except StopIteration:
                break
            state = items.state_dict()
            print(state["delivered"], digest(element), flush=True)
            part = place.with_suffix(".part")
            part.write_text(json.dumps(state))
            os.replace(part, place)
            print("state", flush=True)
        print("end", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
