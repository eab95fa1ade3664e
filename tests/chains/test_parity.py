"""The same crops and flips everywhere: executors, batch sizes, readers, shards, directories, processes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import ops
from gpupipe.transform.machine import gpu_count, has_dali
from tests.chains.data import BACKENDS, ROOT, Spy, batches, on, parse, records, small_example


def windows(spy: Spy, ds: gp.Dataset, backend: str, epoch: int | None = 0) -> dict[str, tuple[Any, ...]]:
    """The crop window and flip of every image, as the executor gets them."""
    spy.drawn.clear()
    for _ in batches(ds.with_options(on(backend)), epoch):
        pass
    return spy.windows()


def reference_windows(spy: Spy, shards: list[Path]) -> dict[str, tuple[Any, ...]]:
    found = windows(spy, gp.TFRecordDataset(shards).map(small_example).batch(8), "numpy")
    assert len(found) == len(records(shards))
    assert len(set(found.values())) > len(found) * 0.9  # images do draw on their own
    return found


def pattern_of(shards: list[Path]) -> str:
    names = ",".join(path.name for path in shards)
    return str(shards[0].parent / f"{{{names}}}")


Chain = Callable[[list[Path]], gp.Dataset]


def interleaved(cycle: int, calls: int | None = None) -> Chain:
    def make(shards: list[Path]) -> gp.Dataset:
        files = gp.Dataset.list_files(pattern_of(shards), shuffle=True)
        ds = files.interleave(gp.TFRecordDataset, cycle_length=cycle, num_parallel_calls=calls)
        return ds.shuffle(100).map(small_example).batch(16)

    return make


def batched(size: int) -> Chain:
    return lambda shards: gp.TFRecordDataset(shards).map(small_example).batch(size)


def reading(readers: int) -> Chain:
    return lambda shards: gp.TFRecordDataset(shards, num_parallel_reads=readers).map(small_example).batch(16)


def sorted_files(shards: list[Path]) -> gp.Dataset:
    files = gp.Dataset.list_files(pattern_of(shards), shuffle=False)
    return files.flat_map(gp.TFRecordDataset).map(small_example).batch(16)


def mapped_behind_the_batch(shards: list[Path]) -> gp.Dataset:
    def crop_and_flip(image: Any, label: Any) -> Any:
        return ops.random_flip_left_right(ops.random_resized_crop(image, (16, 16))), label

    def decoded(record: Any) -> Any:
        encoded, label = parse(record)
        return ops.decode_jpeg(encoded, channels=3), label

    return gp.TFRecordDataset(shards).map(decoded).map(crop_and_flip).batch(16)


CHAINS: dict[str, Chain] = {
    "batch-64": batched(64),
    "cycle-1": interleaved(1),
    "cycle-8-parallel": interleaved(8, gp.AUTOTUNE),
    "calls-2": interleaved(8, 2),
    "readers-8": reading(8),
    "list_files": sorted_files,
    "two-maps": mapped_behind_the_batch,
}


@pytest.mark.parametrize("chain", CHAINS.values(), ids=list(CHAINS))
def test_windows_do_not_depend_on_how_records_are_read(
    shards: list[Path], spy: Spy, backend: str, chain: Chain
) -> None:
    expected = reference_windows(spy, shards)

    assert windows(spy, chain(shards), backend) == expected


@pytest.mark.gpu
@pytest.mark.skipif(not gpu_count(), reason="needs an NVIDIA GPU and its driver")
@pytest.mark.parametrize("size", [8, 16, 64])
def test_windows_on_a_gpu_are_those_on_the_cpu(shards: list[Path], spy: Spy, size: int) -> None:
    assert windows(spy, batched(size)(shards), "gpu") == reference_windows(spy, shards)


PROCESS = """
import json, sys
from pathlib import Path
from tests.chains.data import Spy
from tests.chains.test_parity import batched, windows
from _pytest.monkeypatch import MonkeyPatch

spy = Spy().install(MonkeyPatch())
print(json.dumps(windows(spy, batched(16)([Path(p) for p in sys.argv[2:]]), sys.argv[1])))
"""


def test_windows_are_equal_in_a_new_process(photographs: list[Path], spy: Spy, backend: str) -> None:
    expected = reference_windows(spy, photographs)
    command = [sys.executable, "-c", PROCESS, backend, *map(str, photographs)]
    # Another hash seed: nothing may depend on Python's own hashes.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=60)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(json.dumps(expected))


# ---- windows read off the pixels


def coordinate_files(folder: Path, count: int = 40) -> list[str]:
    """PNGs whose pixels say where they stand: (row, column, number of the image)."""
    paths = []
    for number in range(count):
        height, width = 60 + number % 7 * 20, 200 - number % 5 * 30
        rows, columns = np.mgrid[:height, :width]
        pixels = np.stack([rows, columns, np.full_like(rows, number)], axis=2).astype(np.uint8)
        paths.append(str(folder / f"{number:03d}.png"))
        Image.fromarray(pixels).save(paths[-1])
    return paths


def crop_and_flip(path: Any) -> Any:
    image = ops.random_crop(ops.decode_png(gp.io.read_file(path), channels=3), (24, 17))
    return ops.random_flip_up_down(ops.random_flip_left_right(image))


def read_off(ds: gp.Dataset, backend: str, epoch: int | None = 0) -> dict[int, tuple[int, int, bool, bool]]:
    """Top, left, mirrored, upside down for each image, as its pixels show."""
    found = {}
    for images in batches(ds.with_options(on(backend)), epoch):
        for image in images.astype(int):
            flips = image[0, 0, 1] > image[0, -1, 1], image[0, 0, 0] > image[-1, 0, 0]
            top, left = image[:, :, 0].min(), image[:, :, 1].min()
            rows, columns = np.mgrid[top : top + 24, left : left + 17]
            expected = np.stack([rows, columns], axis=2)[:: -1 if flips[1] else 1, :: -1 if flips[0] else 1]
            np.testing.assert_array_equal(image[:, :, :2], expected)
            found[int(image[0, 0, 2])] = (int(top), int(left), bool(flips[0]), bool(flips[1]))
    return found


def test_windows_read_off_the_pixels_are_equal(tmp_path: Path) -> None:
    paths = coordinate_files(tmp_path)
    source = gp.Dataset.from_tensor_slices(paths)
    expected = read_off(source.map(crop_and_flip).batch(8), "numpy")
    backends = [backend for backend in BACKENDS if backend == "numpy" or has_dali()]

    assert len(expected) == len(paths)
    assert len({window[:2] for window in expected.values()}) > 30
    for corner in range(2, 4):
        assert 5 < sum(window[corner] for window in expected.values()) < 35
    for backend in backends:
        for size in (8, 16, 64):
            assert read_off(source.map(crop_and_flip).batch(size), backend) == expected
        assert read_off(source.shuffle(100).map(crop_and_flip).batch(7), backend) == expected
        assert read_off(gp.Dataset.from_tensor_slices(paths[::-1]).map(crop_and_flip).batch(8), backend) == expected
        halves = [read_off(source.shard(2, i).map(crop_and_flip).batch(8), backend) for i in range(2)]
        assert {**halves[0], **halves[1]} == expected
        assert read_off(source.map(crop_and_flip).batch(8), backend, epoch=1) != expected


# ---- pixels


@pytest.mark.parametrize("grouped", [False, True], ids=["elements", "one-batches"])
def test_decoding_equals_pillow_exactly(shards: list[Path], backend: str, grouped: bool) -> None:
    def decoded(record: Any) -> Any:
        return ops.decode_jpeg(parse(record)[0], channels=3)

    ds = gp.TFRecordDataset(shards).map(decoded)
    got = [
        image[0] if grouped else image for image in batches((ds.batch(1) if grouped else ds).with_options(on(backend)))
    ]

    expected = records(shards)
    assert len(got) == len(expected)
    for image, (data, _) in zip(got, expected, strict=True):
        np.testing.assert_array_equal(image, np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))


# ---- epochs


def test_another_epoch_gives_other_crops_and_every_way_to_it_the_same(
    photographs: list[Path], spy: Spy, backend: str
) -> None:
    def chain() -> gp.Dataset:
        return gp.TFRecordDataset(photographs).map(small_example).batch(16).with_options(on(backend))

    def loop(items: Any) -> list[Any]:
        return [images for images, _ in items]

    ds = chain()
    first, second = loop(batches(ds)), loop(batches(ds))
    with chain().epochs(2) as both:
        epochs = loop(both)
    twice = loop(
        batches(gp.TFRecordDataset(photographs).repeat(2).map(small_example).batch(44).with_options(on(backend)))
    )

    def same(a: list[Any], b: list[Any]) -> bool:
        return np.array_equal(np.concatenate(a), np.concatenate(b))

    assert not same(first, second)
    assert same(second, loop(batches(chain(), epoch=1)))
    assert same(first + second, epochs)
    assert same(first, loop(batches(chain())))  # another source counts for itself
    assert same(first, twice[:1])
    assert not same(second, twice[1:])
    assert not same(first, twice[1:])


def test_a_second_pass_an_epoch_and_a_seed_draw_other_windows_for_every_image(
    photographs: list[Path], spy: Spy, backend: str
) -> None:
    ds = gp.TFRecordDataset(photographs).repeat(2).map(small_example).batch(44)
    one = windows(spy, gp.TFRecordDataset(photographs).map(small_example).batch(16), backend)
    other = windows(spy, gp.TFRecordDataset(photographs).map(small_example).batch(16), backend, epoch=1)
    seeded = gp.TFRecordDataset(photographs).map(small_example).batch(16).with_options(gp.Options(seed=1))
    of_seed = windows(spy, seeded, backend)
    spy.drawn.clear()
    for _ in batches(ds.with_options(on(backend)), 0):
        pass

    first, second = dict(spy.drawn[:44]), dict(spy.drawn[44:])
    assert first == one
    assert first.keys() == second.keys()
    assert sum(first[name] == second[name] for name in first) <= 2
    assert sum(other[name] == second[name] for name in first) <= 2
    assert sum(of_seed[name] == first[name] for name in first) <= 2
