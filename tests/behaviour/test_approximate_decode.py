"""Options(approximate_decode=True): which chains it changes, and what stays as it is without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.optimize.lower.compile import lower_dry
from gpupipe.spec import flatten
from tests.chains.damage import bad_scan, bad_tables, no_thread_left

FILES = [encoded(picture(90 + 3 * n, 130 - 4 * n), quality=90, subsampling=n % 3) for n in range(8)]
BACKENDS = ["numpy", "dali"]
ON = gp.Options(approximate_decode=True)

Image = Callable[[Any], Any]


def photo(data: Any) -> Any:
    return ops.decode_jpeg(data, channels=3)


def augmented(data: Any) -> Any:
    """The usual chain, with the window that was drawn."""
    image, window = ops.random_resized_crop(photo(data), (12, 14), return_params=True)
    return ops.normalize(ops.random_flip_left_right(image), 100.0, 50.0), window


def chain(fn: Any, backend: Any = "numpy", files: Any = FILES, **options: Any) -> gp.Dataset:
    ds = gp.Dataset.from_list(list(files)).map(fn).batch(3)
    return ds.with_options(gp.Options(device="cpu", backend=backend, seed=5, threads=2, **options))


def fires(ds: gp.Dataset) -> int:
    """How many resizes decode a fraction of their images."""
    return lower_dry(ds.plan, ds.options().resolve()).placer.fired.get("approximate_decode", 0)


RESIZED: dict[str, Image] = {
    "random_resized_crop": lambda data: ops.random_resized_crop(photo(data), 12),
    "bicubic": lambda data: ops.random_resized_crop(photo(data), 12, interpolation="bicubic"),
    "resize": lambda data: ops.resize(photo(data), (12, 9), antialias=True),
    "fitted": lambda x: ops.resize_with_crop_or_pad(ops.resize(photo(x), (9, 9), preserve_aspect_ratio=True), 9, 9),
    "shorter side and centre": lambda data: ops.center_crop(ops.resize_shorter(photo(data), 14), 12),
    "the window of a fused decoder": lambda data: ops.resize(ops.decode_and_crop_jpeg(data, (9, 5, 70, 80)), (9, 9)),
}

EXACT: dict[str, Image] = {
    "nothing is resized": lambda data: ops.random_crop(photo(data), (12, 12, 3)),
    "nearest": lambda data: ops.random_resized_crop(photo(data), 12, interpolation="nearest"),
    "area": lambda data: ops.resize(photo(data), (9, 9), "area"),
    "mirrored before": lambda data: ops.resize(ops.flip_left_right(photo(data)), (9, 9)),
    "a ratio of the user's": lambda data: ops.resize(ops.decode_jpeg(data, ratio=2), (9, 9)),
    "also as it is": lambda data: [(ops.resize(x, (9, 9)), ops.center_crop(x, 9)) for x in [photo(data)]],
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", RESIZED)
def test_a_decoded_image_that_is_only_resized_changes_a_little(name: str, backend: Any) -> None:
    ds = chain(RESIZED[name], backend)

    exact, smaller = next(iter(ds)), next(iter(ds.with_options(ON)))

    assert fires(ds) == 0
    assert fires(ds.with_options(ON)) == 1
    assert "approximate_decode=True: decode_smaller decodes a JPEG at 1/2, 1/4" in str(ds.with_options(ON).explain())
    assert (exact.shape, exact.dtype) == (smaller.shape, smaller.dtype)
    off = np.abs(exact.astype(float) - smaller)
    # without antialias, exact decoding keeps fine stripes that the smaller transform averages
    assert 0 < off.mean() < (9 if name in ("bicubic", "random_resized_crop", "shorter side and centre") else 30)


@pytest.mark.parametrize("name", EXACT)
def test_anything_else_is_decoded_exactly(name: str) -> None:
    ds = chain(EXACT[name])

    exact, smaller = next(iter(ds)), next(iter(ds.with_options(ON)))

    assert fires(ds.with_options(ON)) == 0
    for one, other in zip(flatten(exact)[0], flatten(smaller)[0], strict=True):
        np.testing.assert_array_equal(one, other)
    assert "approximate_decode=True: changes nothing" in str(ds.with_options(ON).explain())


@pytest.mark.parametrize("backend", BACKENDS)
def test_windows_and_flips_are_equal_as_numbers(backend: Any) -> None:
    ds = chain(augmented, backend)
    batches = list(zip(ds.iterator(1), ds.with_options(ON).iterator(1), strict=True))

    for (exact, window), (smaller, other) in batches:
        np.testing.assert_array_equal(window, other)
        mirrored = np.abs(exact - smaller[:, :, ::-1]).mean()
        assert np.abs(exact - smaller).mean() < mirrored / 3
    assert any((exact != smaller).any() for (exact, _), (smaller, _) in batches)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mask_in_the_same_window_stays_exact(backend: Any) -> None:
    masks = [encoded(picture(90 + 3 * n, 130 - 4 * n, 1), "PNG") for n in range(8)]

    def both(data: Any, mask: Any) -> Any:
        images = photo(data), ops.decode_png(mask, channels=1)
        return ops.random_resized_crop(images, 12, interpolation=("bilinear", "nearest"))

    ds = gp.Dataset.from_tensor_slices((FILES, masks)).map(both).batch(8)
    ds = ds.with_options(gp.Options(backend=backend, device="cpu"))
    (exact, mask), (smaller, other) = next(iter(ds)), next(iter(ds.with_options(ON)))

    assert (exact != smaller).any()
    np.testing.assert_array_equal(mask, other)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_window_that_is_not_much_larger_than_the_result_is_decoded_exactly(backend: Any) -> None:
    ds = chain(lambda data: ops.random_resized_crop(photo(data), (64, 64)), backend)

    assert fires(ds.with_options(ON)) == 1
    for exact, other in zip(ds, ds.with_options(ON), strict=True):
        np.testing.assert_array_equal(exact, other)


def test_executors_agree() -> None:
    batches = (chain(augmented, backend).with_options(ON) for backend in BACKENDS)
    for (first, _), (second, _) in zip(*batches, strict=True):
        off = np.abs(first - second) * 50
        # Pillow and DALI round differently, and DALI repeats edge pixels
        assert off.max() <= 18 and off[:, 1:-1, 1:-1].max() < 1.01


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_same_images_are_bad(backend: Any, tmp_path: Path) -> None:
    files = list(FILES)
    files[2], files[5] = bad_scan(FILES[2]), bad_tables(FILES[5])
    ds = chain(lambda data: (ops.random_resized_crop(photo(data), 12), 1), backend, files, on_error="skip")

    with no_thread_left():
        rows: list[int] = []
        bad: list[Any] = []
        for one in (ds, ds.with_options(ON)):
            manifest = tmp_path / f"{len(rows)}.jsonl"
            rows.append(sum(len(labels) for _, labels in one.with_options(gp.Options(error_manifest=manifest))))
            lines = [json.loads(line) for line in manifest.read_text().splitlines()]
            bad.append([(line["offset"], line["stage"], line["reason"]) for line in lines])

    assert rows == [6, 6]
    assert bad[0] == bad[1]
    assert [offset for offset, _, _ in bad[0]] == [2, 5]
