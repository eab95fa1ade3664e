"""Determinism: the stream is a function of (files, plan, seed, epoch), whatever reads, batches, computes or resumes it.

Every image has a number of its own, so that crops, flips and pixels are compared image by image.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import Dataset, ops
from tests.chains import damage
from tests.chains.data import Spy, on, parse
from tests.reliability.bad_records import host
from tests.reliability.executors import EXECUTORS
from tests.reliability.image_files import written

FILES, IMAGES = 8, 130
SIZE = (16, 12)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    """JPEG images of several sizes and kinds in shards of unequal length; answer their pattern."""
    folder = tmp_path_factory.mktemp("determinism")
    shards: list[list[bytes]] = [[] for _ in range(FILES)]
    for number in range(IMAGES):
        shards[number * number % 11 % FILES].append(damage.example(number, small(number)))
    for i, shard in enumerate(shards):
        damage.write(folder / f"part-{i}", shard)
    return str(folder / "part-*")


def small(number: int) -> bytes:
    rng = np.random.default_rng(number)
    height, width = (int(n) for n in rng.integers(24, 72, 2))
    pixels = rng.integers(0, 256, (6, 6, 3), np.uint8)
    picture = Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC)
    return written(picture, "JPEG", quality=90, subsampling=number % 3, progressive=number % 7 == 0)


def augmented(record: Any) -> Any:
    """What a training chain draws: a crop window, a flip, a colour."""
    encoded, number = parse(record)
    image = ops.random_resized_crop(ops.decode_jpeg(encoded, channels=3), SIZE)
    image = ops.random_flip_left_right(image)
    return ops.random_brightness(image, 0.2), number


def records(pattern: str, readers: int, cycle: int | None = None, deterministic: bool | None = None) -> Dataset:
    names = Dataset.list_files(pattern, seed=3)
    return names.interleave(gp.TFRecordDataset, cycle or readers, None, readers, deterministic)


def rows(batches: Any) -> list[tuple[int, str]]:
    """(number, a hash of the pixels) of every image, in order."""
    pairs = [pair for batch in batches for pair in zip(*map(host, batch), strict=True)]
    return [(int(number), hashlib.blake2b(image.tobytes(), digest_size=12).hexdigest()) for image, number in pairs]


def by_number(found: list[tuple[int, str]]) -> dict[int, str]:
    assert len(dict(found)) == len(found) == IMAGES
    return dict(found)


def resumed(ds: Dataset, epoch: int, behind: int) -> tuple[list[Any], list[Any]]:
    """The batches up to a place, and those of another iterator that goes on from its state."""
    with ds.iterator(epoch) as items:
        before = [next(items) for _ in range(behind)]
        state = json.loads(json.dumps(items.state_dict()))
    again = iter(ds)
    again.load_state_dict(state)
    with again:
        return before, list(again)


# ---- the matrix


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """What the first cell of each executor found: every other cell has to find it too."""
    return {}


THREADS, READERS, BATCHES = (1, 2, 8), (1, 4, 8), (8, 16, 64)
CELLS = [(BATCHES[i], READERS[k], THREADS[(i + k) % 3]) for i in range(3) for k in range(3)]
"""Each pair of values once."""


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(("size", "readers", "threads"), CELLS)
def test_crops_flips_and_pixels_are_those_of_every_other_cell(
    shards: str, spy: Spy, seen: dict[str, Any], executor: str, size: int, readers: int, threads: int
) -> None:
    ds = records(shards, readers).shuffle(40, seed=5).map(augmented).batch(size).prefetch(2)
    ds = ds.with_options(on(executor, threads=threads))

    fresh = rows(ds.iterator(epoch=1))
    drawn = spy.windows()

    assert len(drawn) == IMAGES and len(set(drawn.values())) > IMAGES * 0.9
    assert seen.setdefault("crops and flips", drawn) == drawn
    assert seen.setdefault(executor, by_number(fresh)) == by_number(fresh)

    spy.drawn.clear()
    before, behind = resumed(ds, 1, behind=IMAGES // (2 * size))

    assert spy.windows() == drawn
    assert rows(before) + rows(behind) == fresh


# ---- the order


ORDERED = {
    "threads": [{"threads": 1}, {"threads": 2}, {"threads": 8}],
    "batches": [{"size": 1}, {"size": 8}, {"size": 64}],
    "readers": [{"readers": 1}, {"readers": 4}, {"readers": 8}],
    "prefetch": [{"prefetch": 0}, {"prefetch": 1}, {"prefetch": 5}, {"prefetch": gp.AUTOTUNE}],
    "memory": [{"memory": 1}, {"memory": 1 << 30}],
}


def ordered(
    pattern: str, threads: int = 2, size: int = 16, readers: int = 4, prefetch: int = 2, memory: int = 1 << 30
) -> list[tuple[int, str]]:
    ds = records(pattern, readers, cycle=3).shuffle(30, seed=1).map(augmented).batch(size).prefetch(prefetch)
    return rows(ds.with_options(on("numpy", threads=threads, host_memory=memory)).iterator(epoch=2))


@pytest.mark.parametrize("axis", ORDERED)
def test_the_order_and_the_pixels_do_not_depend_on(shards: str, axis: str) -> None:
    expected = ordered(shards)
    assert sorted(expected) != expected and len(expected) == IMAGES

    for options in ORDERED[axis]:
        assert ordered(shards, **options) == expected, options


@pytest.mark.parametrize("cpus", [1, 3, 64])
def test_the_order_and_the_pixels_do_not_depend_on_the_cpus_of_the_machine(
    shards: str, monkeypatch: pytest.MonkeyPatch, cpus: int
) -> None:
    def chain() -> Dataset:
        ds = records(shards, gp.AUTOTUNE, cycle=3).shuffle(30, seed=1).map(augmented)
        return ds.map(lambda image, number: (image, int(number)), num_parallel_calls=gp.AUTOTUNE).batch(16)

    expected = rows(chain().with_options(on("numpy")).iterator(epoch=2))
    if hasattr(os, "sched_getaffinity"):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cpus)))
    monkeypatch.setattr(os, "cpu_count", lambda: cpus)
    assert chain().options().resolve().threads == cpus  # what is asked for is seen

    assert rows(chain().with_options(on("numpy")).iterator(epoch=2)) == expected


# ---- without an order


@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_image_keeps_its_augmentation_where_the_order_is_free(shards: str, executor: str) -> None:
    def found(deterministic: bool) -> dict[int, str]:
        ds = records(shards, 8, deterministic=deterministic)
        ds = ds.map(lambda record: bytes(record), num_parallel_calls=4, spec=gp.TensorSpec((), bytes))
        ds = ds.shuffle(20).map(augmented).batch(16).prefetch(2)
        return by_number(rows(ds.with_options(on(executor, deterministic=deterministic)).iterator(epoch=4)))

    assert found(deterministic=False) == found(deterministic=True)


# ---- epochs across iterators


@pytest.mark.parametrize("epoch", [-1, 1.5, None, "3", True])
def test_set_epoch_needs_a_number(epoch: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="set_epoch needs"):
        Dataset.range(3).set_epoch(epoch)
