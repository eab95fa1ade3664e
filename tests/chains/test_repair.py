"""Repair: delivered batches are those of a stream whose bad records were known from the start, whoever notices them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from tests.chains import damage
from tests.chains.damage import decoded, events, example, jpeg, labels_of, no_thread_left, write
from tests.chains.data import Spy, on, parse

COUNT = 40
# Neighbours, more than a batch in a row, the first and the last.
DECODER_ONLY = {
    3: damage.bad_scan,
    9: damage.bad_tables,
    10: damage.bad_scan,
    11: damage.bad_scan,
    12: damage.bad_tables,
}
DECODER_ONLY |= {13: damage.bad_scan, 25: damage.bad_tables, 39: damage.bad_scan}
EVERY_KIND = {0: damage.bad_scan, 1: damage.cut, 7: damage.bad_tables, 8: damage.cut, 9: damage.bomb, 20: damage.cut}
EVERY_KIND |= {21: damage.bad_scan, 22: damage.bad_scan, 30: damage.bad_scan, 31: damage.cut, 32: damage.bad_tables}
MOSTLY = {i: damage.bad_scan for i in range(COUNT) if i % 5}
SETS = {
    "decoder-only": DECODER_ONLY,
    "every-kind": EVERY_KIND,
    "mostly": MOSTLY,
    "all": dict.fromkeys(range(COUNT), damage.bad_scan),
}

pytestmark = pytest.mark.timeout(20)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    with no_thread_left():
        yield


def shard(folder: Path, bad: dict[int, Any]) -> tuple[Path, list[int]]:
    path = folder / "shard.tfrecord"
    return path, write(path, [example(i, bad[i](jpeg(i)) if i in bad else None) for i in range(COUNT)])


def model(bad: Sequence[int], size: int, on_error: str, drop: bool = False) -> list[Any]:
    """What `on_error` means: batches as lists of labels, errors as the numbers of their records."""
    out: list[Any] = []
    rows: list[int] = []
    last, early = -1, 0
    for i in range(COUNT):
        if i not in bad:
            rows += [i] * early
            early = 0
            last = i
            rows.append(i)
        elif on_error == "raise":
            out.append(f"bad {i}")
        elif on_error == "replace":
            if last < 0:
                early += 1
            else:
                rows.append(last)
        while len(rows) >= size:
            out.append(rows[:size])
            rows = rows[size:]
    return [*out, rows] if rows and not drop else out


def flipped(record: Any) -> Any:
    """A random op, so that it is seen under whose key a stand-in is drawn."""
    encoded, label = parse(record)
    return ops.random_crop(ops.decode_jpeg(encoded, channels=3), (12, 16)), label


def named(found: Sequence[Any], offsets: list[int]) -> list[Any]:
    """Batches as labels, errors as the numbers of their records."""
    return [f"bad {offsets.index(x.offset or 0)}" if isinstance(x, gp.DataError) else x for x in labels_of(found)]


def in_place(found: Sequence[Any]) -> list[Any]:
    """The same with the errors between two batches in one order: a bad header is noticed before a bad scan."""
    out: list[Any] = [[]]
    for item in found:
        if isinstance(item, str):
            out[-1].append(item)
        else:
            out += [item, []]
    return [sorted(item) if item and isinstance(item[0], str) else item for item in out]


WAYS: dict[str, tuple[int, bool, dict[str, int]]] = {
    "one": (1, False, {}),
    "three": (3, False, {}),
    "sixteen": (16, False, {}),
    "remainder dropped": (7, True, {}),
    "in parts": (16, False, {"device_memory": 5 * 24 * 32 * 3}),
    "small host memory": (8, False, {"host_memory": 1}),
}
"""Rows of a batch, whether the last ones are dropped, and options."""


@pytest.mark.parametrize(
    ("way", "bad", "on_error"),
    [
        (way, bad, on_error)
        for way in WAYS
        for bad in (SETS if way in ("three", "sixteen") else ["decoder-only"])
        for on_error in ("raise", "skip", "replace")
        if (way, on_error) != ("remainder dropped", "raise")  # errors of what is dropped are not raised
    ],
)
def test_batches_equal_the_plain_model(tmp_path: Path, backend: str, on_error: str, way: str, bad: str) -> None:
    (size, drop, options), broken = WAYS[way], SETS[bad]
    path, offsets = shard(tmp_path, broken)
    ds = gp.TFRecordDataset(path).map(flipped).batch(size, drop_remainder=drop).prefetch(2)

    found = events(ds.with_options(on(backend, on_error=on_error, **options)))

    assert in_place(named(found, offsets)) == in_place(model(list(broken), size, on_error, drop))


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_images_are_those_of_their_records(tmp_path: Path, backend: str, on_error: str) -> None:
    """Also a stand-in's: the last good record, cropped under the key of the bad one."""
    path, _ = shard(tmp_path, DECODER_ONLY)
    good = tmp_path / "good"
    good.mkdir()
    whole, _ = shard(good, {})
    assert whole.name == path.name
    crops: dict[int, Any] = {}
    for images, labels in events(gp.TFRecordDataset(whole).map(flipped).batch(8).with_options(on(backend))):
        crops.update(zip(labels.tolist(), images, strict=True))
    ds = gp.TFRecordDataset(path).map(flipped).batch(8).with_options(on(backend, on_error=on_error))

    rows = [(image, int(label)) for x in events(ds) if isinstance(x, tuple) for image, label in zip(*x, strict=True)]

    assert len(rows) == (COUNT if on_error == "replace" else COUNT - len(DECODER_ONLY))
    for place, (image, label) in enumerate(rows):
        if on_error != "replace" or place == label:
            np.testing.assert_array_equal(image, crops[label])
        else:
            assert place in DECODER_ONLY
            assert is_a_crop_of(image, decoded_pixels(label))
    if on_error == "replace":  # two stand-ins of one record are not cropped alike
        assert len({image.tobytes() for image, label in rows if label == 8}) > 2


def decoded_pixels(label: int) -> Any:
    return ops.decode_jpeg(jpeg(label), channels=3)


def is_a_crop_of(image: Any, whole: Any) -> bool:
    h, w = image.shape[:2]
    places = [(y, x) for y in range(whole.shape[0] - h + 1) for x in range(whole.shape[1] - w + 1)]
    return any(np.array_equal(whole[y : y + h, x : x + w], image) for y, x in places)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_counting_steps_count_bad_records(tmp_path: Path, backend: str, on_error: str) -> None:
    """take, skip, enumerate and zip see a bad record as an element, whoever finds it, and whenever."""
    path, _ = shard(tmp_path, DECODER_ONLY)
    numbers = gp.Dataset.range(100)
    ds = gp.Dataset.zip(gp.TFRecordDataset(path).map(flipped), numbers).skip(2).take(12).enumerate().batch(4)
    ds = ds.map(lambda i, pair: (pair[0][0], i, pair[0][1], pair[1])).with_options(on(backend, on_error=on_error))

    found = [item for item in events(ds) if not isinstance(item, gp.DataError)]

    columns = [np.concatenate([item[k] for item in found]).tolist() for k in (1, 2, 3)]
    good = [i for i in range(2, 14) if i not in DECODER_ONLY]
    assert columns == [[i - 2 for i in good], good, good]


# ---- budgets


def test_a_small_device_memory_runs_batches_in_parts_with_equal_results(tmp_path: Path, backend: str, spy: Spy) -> None:
    path, _ = shard(tmp_path, {})
    ds = gp.TFRecordDataset(path).map(decoded).batch(16).with_options(on(backend))
    one = 24 * 32 * 3

    whole = events(ds)
    runs = len(spy.sizes)
    parts = events(ds.with_options(gp.Options(device_memory=5 * one)))
    sizes = spy.sizes[runs:]
    single = events(ds.with_options(gp.Options(device_memory=1)))

    assert spy.sizes[:runs] == [16, 16, 8]
    assert sizes == [5, 5, 5, 1, 5, 5, 5, 1, 5, 3]
    for other in (parts, single):
        assert labels_of(other) == labels_of(whole)
        for (a, _), (b, _) in zip(whole, other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_rows_of_a_shortened_batch_keep_their_keys(tmp_path: Path, backend: str) -> None:
    """Two stages: rows cropped behind the one that found bad rows draw as if nothing had happened."""
    path, _ = shard(tmp_path, DECODER_ONLY)

    def decode(encoded: Any, label: Any) -> Any:
        return ops.decode_jpeg(encoded, channels=3), label

    def crop(image: Any, label: Any) -> Any:
        return ops.random_crop(image, (12, 16)), label

    def crops(ds: gp.Dataset) -> dict[int, bytes]:
        found = events(ds.batch(8).with_options(on(backend, on_error="skip")))
        return {
            int(label): image.tobytes() for images, labels in found for image, label in zip(images, labels, strict=True)
        }

    records = gp.TFRecordDataset(path).map(parse)
    expected = crops(records.cache().map(decode).map(crop))  # a cache has keys of its own

    assert len(expected) == COUNT - len(DECODER_ONLY)
    assert crops(records.batch(8).cache().map(decode).unbatch().map(crop)) == expected
