"""The chains that people know, as they write them, on TFRecords and on a folder of class directories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.extract.images.decode import decode as host_decode
from gpupipe.ops._shared import decoding
from tests.chains.data import Spy, batches, on, parse, records, train_example


def load(path: Any) -> Any:
    image = ops.decode_jpeg(gp.io.read_file(path), channels=3)
    image = ops.resize(image, (192, 192))
    return 2 * (image / 255) - 1


def decode_and_resize(encoded: Any, label: Any) -> Any:
    image = ops.resize(ops.decode_jpeg(encoded, channels=3), (192, 192))
    return 2 * (image / 255) - 1, label


def validation_example(record: Any) -> Any:
    encoded, label = parse(record)
    image = ops.resize_shorter(ops.decode_jpeg(encoded, channels=3), 256)
    image = ops.center_crop(image, 224)
    image = ops.normalize(image, mean=ops.IMAGENET_MEAN, std=ops.IMAGENET_STD)
    return ops.transpose(image, "CHW"), label


def paths_and_labels(folder: Path) -> tuple[list[str], list[int]]:
    paths = sorted(folder.glob("*/*.jpg"))
    return [str(path) for path in paths], [int(path.parent.name) for path in paths]


def check_photographs(got: list[Any], shape: tuple[int, ...], labels: list[int]) -> None:
    """Batches of plausible float images, with every label as often as it should be."""
    images = np.concatenate([batch[0] for batch in got])
    assert images.dtype == np.float32 and images.shape == (len(labels), *shape)
    assert np.isfinite(images).all()
    # Every image is a photograph, and none is another's.
    assert images.std(axis=(1, 2, 3)).min() > 0.01
    assert len({image.tobytes() for image in images}) == len(images)
    assert sorted(np.concatenate([batch[1] for batch in got]).tolist()) == sorted(labels)


def test_chain_a_on_tfrecords(shards: list[Path], backend: str) -> None:
    pattern = str(shards[0].parent / shards[0].name.replace("00000", "0000[0-2]"))
    ds = (
        gp.Dataset.list_files(pattern, seed=1)
        .interleave(gp.TFRecordDataset, cycle_length=8, num_parallel_calls=gp.AUTOTUNE)
        .shuffle(10_000, seed=1)
        .map(train_example, num_parallel_calls=gp.AUTOTUNE)
        .batch(8)
        .prefetch(gp.AUTOTUNE)
        .with_options(on(backend))
    )

    got = list(batches(ds))

    check_photographs(got, (224, 224, 3), [label for _, label in records(shards[:3])])
    assert [len(labels) for _, labels in got[:-1]] == [8] * (len(got) - 1)


def test_chain_b_gives_every_record_in_both_passes(shards: list[Path]) -> None:
    ds = gp.TFRecordDataset(shards).map(parse).shuffle(100).repeat(2).batch(16).prefetch(2)

    got = list(batches(ds))

    expected = records(shards)
    rows = [(bytes(data), int(label)) for images, labels in got for data, label in zip(images, labels, strict=True)]
    assert sorted(rows[: len(expected)]) == sorted(rows[len(expected) :]) == sorted(expected)
    assert rows[: len(expected)] != rows[len(expected) :]


def count_calls_of_decode(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of what the host decoder was handed: what the NumPy executor decodes with."""
    calls: list[int] = []
    decode = host_decode

    def counted(data: Any, *rest: Any) -> Any:
        calls.append(len(data))
        return decode(data, *rest)

    monkeypatch.setattr(decoding, "decode", counted)
    return calls


def test_chain_c_decodes_once(class_folder: Path, backend: str, spy: Spy, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, labels = paths_and_labels(class_folder)
    calls = count_calls_of_decode(monkeypatch)
    images = gp.Dataset.from_tensor_slices(paths).map(load, num_parallel_calls=gp.AUTOTUNE)
    ds = (
        gp.Dataset.zip(images, gp.Dataset.from_tensor_slices(labels))
        .cache()
        .shuffle(200)
        .batch(40)
        .prefetch(gp.AUTOTUNE)
        .with_options(on(backend))
    )

    first = list(batches(ds))
    decoded, called = spy.decoded, len(calls)
    second = list(batches(ds))

    check_photographs(first, (192, 192, 3), labels)
    check_photographs(second, (192, 192, 3), labels)
    assert decoded == len(paths)
    assert called == (len(paths) if backend == "numpy" else 0)
    assert (spy.decoded, len(calls)) == (decoded, called)
    rows = [{(x.tobytes(), int(y)) for xs, ys in part for x, y in zip(xs, ys, strict=True)} for part in (first, second)]
    assert rows[0] == rows[1]
    order = [np.concatenate([y for _, y in part]).tolist() for part in (first, second)]
    assert order[0] != order[1]


def test_the_validation_chain_of_imagenet(shards: list[Path], backend: str) -> None:
    ds = gp.TFRecordDataset(shards).map(validation_example).batch(16).prefetch(gp.AUTOTUNE).with_options(on(backend))

    got = list(batches(ds))

    expected = records(shards)
    labels = np.concatenate([y for _, y in got]).tolist()
    assert labels == [label for _, label in expected]
    images = np.concatenate([x for x, _ in got])
    assert images.shape == (len(expected), 3, 224, 224) and images.dtype == np.float32
    for image, (data, _) in zip(images, expected, strict=True):
        # torchvision's chain in Pillow; antialiased resizing is within 1 of 255 away from the image's edge.
        difference = np.abs(image - pillow_validation(data)) * np.array(ops.IMAGENET_STD, np.float32)[:, None, None]
        assert difference[:, 1:-1, 1:-1].max() < 1.001
        assert difference.max() < 18


def pillow_validation(data: bytes) -> Any:
    import io

    from PIL import Image

    image = Image.open(io.BytesIO(data)).convert("RGB")
    width, height = image.size
    short = min(width, height)
    size = (256, int(256 * height / width)) if width == short else (int(256 * width / height), 256)
    image = image.resize(size, Image.Resampling.BILINEAR)
    left, top = round((size[0] - 224) / 2), round((size[1] - 224) / 2)
    pixels = np.asarray(image.crop((left, top, left + 224, top + 224)), np.float32)
    normal = (pixels - np.array(ops.IMAGENET_MEAN, np.float32)) / np.array(ops.IMAGENET_STD, np.float32)
    return normal.transpose(2, 0, 1)
