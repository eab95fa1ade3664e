"""Chains with images go on exactly where a state was taken: the same records, random numbers and pixels."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from tests.chains import damage
from tests.chains.data import parse
from tests.reliability.resume import goes_on, taken

BAD = {3: damage.bad_scan, 4: damage.cut, 11: damage.bad_tables, 12: damage.bad_tables, 20: damage.bomb}


def crop(record: Any) -> Any:
    encoded, label = parse(record)
    image = ops.random_resized_crop(ops.decode_jpeg(encoded, channels=3), (8, 8))
    return ops.random_flip_left_right(image), label


def even(image: Any, label: Any) -> Any:
    return label % 2 == 0


def brighter(image: Any, label: Any) -> Any:
    return np.asarray(image) // 2, np.asarray(label)


def shards(folder: Path, bad: Mapping[int, Callable[[bytes], bytes]], count: int = 30, files: int = 3) -> str:
    for i in range(files):
        numbers = range(i * count // files, (i + 1) * count // files)
        damage.write(
            folder / f"{i}.tfrecord",
            [damage.example(n, bad[n](damage.jpeg(n)) if n in bad else damage.jpeg(n)) for n in numbers],
        )
    return str(folder / "*.tfrecord")


def records(pattern: str) -> gp.Dataset:
    return gp.Dataset.list_files(pattern, seed=1).interleave(gp.TFRecordDataset, cycle_length=2, num_parallel_calls=2)


CHAINS: dict[str, Callable[[str], gp.Dataset]] = {
    "the chain of the README": lambda p: records(p).shuffle(8, seed=1).map(crop).batch(4).prefetch(2),
    "drop_remainder, repeat": lambda p: records(p).shuffle(8).repeat(2).map(crop).batch(7, drop_remainder=True),
    "repeat of batches": lambda p: records(p).map(crop).batch(4).repeat(2).prefetch(2),
    "filter by label": lambda p: records(p).map(crop).filter(even).batch(4),
    "global shuffle": lambda p: (
        gp.TFRecordDataset(sorted(map(str, Path(p).parent.glob("*")))).shuffle(gp.ALL).map(crop).batch(4)
    ),
    "single images": lambda p: records(p).map(crop),
    "Python behind the images": lambda p: records(p).map(crop).map(brighter).batch(4),
    "cache of images": lambda p: records(p).map(crop).cache().repeat(2).batch(4),
    "map over batches": lambda p: (
        records(p).map(parse).batch(4).map(lambda data, label: (ops.decode_jpeg(data), label))
    ),
    "unbatch": lambda p: records(p).map(crop).batch(4).unbatch().batch(3),
    "zipped batches": lambda p: gp.Dataset.zip((records(p).map(crop).batch(4), gp.Dataset.range(100))),
}


ERRORS = ("raise", "skip", "replace")
CELLS = [
    (name, backend, on_error)
    for number, name in enumerate(CHAINS)
    for begin, backend in enumerate(("dali", "numpy"), number)
    for on_error in (ERRORS if os.environ.get("GPUPIPE_FULL") else [ERRORS[begin % 3]])
]
"""In full all of them; else each policy in its turn."""


@pytest.mark.parametrize(("name", "backend", "on_error"), CELLS)
def test_images_go_on_where_a_state_was_taken(name: str, backend: Any, on_error: Any, tmp_path: Path) -> None:
    if backend == "dali":
        pytest.importorskip("nvidia.dali")
    pattern = shards(tmp_path, BAD)
    options = gp.Options(device="cpu", backend=backend, on_error=on_error, threads=2)

    def build() -> gp.Dataset:
        return CHAINS[name](pattern).with_options(options)

    with iter(build()) as items:
        n = len(taken(items))
    assert n > 2
    goes_on(build, None if n < 12 else (0, 1, 2, 3, 5, n // 2, n - 1, n))


@pytest.mark.parametrize("on_error", ERRORS)
def test_nothing_but_bad_images_at_the_begin(on_error: Any, tmp_path: Path) -> None:
    pattern = shards(tmp_path, dict.fromkeys(range(13), damage.bad_scan))
    options = gp.Options(device="cpu", backend="numpy", on_error=on_error)

    def build() -> gp.Dataset:
        files = sorted(map(str, Path(pattern).parent.glob("*")))
        return gp.TFRecordDataset(files).map(crop).batch(4).with_options(options)

    goes_on(build)
