"""A chain that people know, as they write it: images of files behind a cache are decoded once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import gpupipe as gp
from gpupipe import ops
from tests.chains.data import Spy, batches, on, records


def load(path: Any) -> Any:
    image = ops.resize(ops.decode_jpeg(gp.io.read_file(path), channels=3), (192, 192))
    return 2 * (image / 255) - 1


def test_a_cache_decodes_each_image_once(photographs: list[Path], tmp_path: Path, backend: str, spy: Spy) -> None:
    files = records(photographs)
    paths = [str(tmp_path / f"{number}.jpg") for number in range(len(files))]
    for path, (data, _) in zip(paths, files, strict=True):
        Path(path).write_bytes(data)
    images = gp.Dataset.from_tensor_slices(paths).map(load, num_parallel_calls=gp.AUTOTUNE)
    labels = gp.Dataset.from_tensor_slices([label for _, label in files])
    ds = gp.Dataset.zip(images, labels).cache().shuffle(200).batch(40).prefetch(gp.AUTOTUNE).with_options(on(backend))

    def rows() -> list[tuple[bytes, int]]:
        return [(x.tobytes(), int(y)) for xs, ys in batches(ds) for x, y in zip(xs, ys, strict=True)]

    first, decoded, second = rows(), spy.decoded, rows()

    assert spy.decoded == decoded == len(files)
    assert sorted(first) == sorted(second) and first != second
    assert {len(image) for image, _ in first} == {192 * 192 * 3 * np.dtype(np.float32).itemsize}
    assert len({image for image, _ in first}) == len(files)
    assert sorted(label for _, label in first) == sorted(label for _, label in files)
