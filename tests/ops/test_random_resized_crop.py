"""random_resized_crop: torchvision's law of windows, their statistics, and what is done with them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gpupipe import ops
from gpupipe.errors import PlanTypeError, ShapeError, SpecError
from gpupipe.ops._shared.samples import noise, picture
from gpupipe.ops.random_resized_crop import RandomResizedCrop, crop_windows
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)


def numbers(count: int, seed: int = 3) -> BatchRng:
    """Numbers for elements 0, 1, 2, ..."""
    return BatchRng(seed, 0, np.arange(count, dtype=np.uint64), site=7)


def by_the_book(u: list[float], height: int, width: int) -> tuple[int, int, int, int]:
    """The law as its description in words says it, for one image, with the same numbers."""
    for attempt in range(10):
        area = height * width * (SCALE[0] + u[attempt] * (SCALE[1] - SCALE[0]))
        low, high = math.log(RATIO[0]), math.log(RATIO[1])
        ratio = math.exp(low + u[10 + attempt] * (high - low))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(u[20] * (height - h + 1)), int(u[21] * (width - w + 1)), h, w
    w, h = width, height
    if width / height < RATIO[0]:
        h = round(width / RATIO[0])
    elif width / height > RATIO[1]:
        w = round(height * RATIO[1])
    return (height - h) // 2, (width - w) // 2, h, w


@pytest.mark.parametrize(
    ("height", "width"), [(375, 500), (500, 375), (64, 64), (100, 1000), (1000, 90), (1, 1), (3, 2)]
)
def test_windows_follow_the_description(height: int, width: int) -> None:
    u = numbers(500).uniform(22)

    start, shape = crop_windows(u, np.tile([height, width], (500, 1)), SCALE, RATIO)

    expected = [by_the_book(row, height, width) for row in u.tolist()]
    assert np.concatenate([start, shape], axis=1).tolist() == [list(window) for window in expected]
    assert start.dtype == shape.dtype == np.int32


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    hw = np.tile([375, 500], (64, 1))

    start, shape, size = RandomResizedCrop(9, 9).draw(numbers(64), hw)

    for row in (0, 17, 63):
        rng = BatchRng(3, 0, np.array([row], np.uint64), site=7)
        alone = RandomResizedCrop(9, 9).draw(rng, hw[:1])
        assert [part[0].tolist() for part in alone] == [part[row].tolist() for part in (start, shape, size)]


def test_the_pixels_are_crop_then_resize() -> None:
    x = picture(61, 83)

    window = (np.array(pair, np.int32) for pair in ([5, 9], [40, 50], [24, 31]))

    got = RandomResizedCrop(24, 31).reference(x, *window)

    expected = Image.fromarray(x[5:45, 9:59]).resize((31, 24), Image.Resampling.BILINEAR)
    assert got.dtype == np.uint8
    np.testing.assert_array_equal(got, np.asarray(expected))


def test_image_and_mask_get_the_same_window() -> None:
    y, x = np.mgrid[0:120, 0:100].astype(np.uint8)
    image, mask = np.stack([y, x, y], axis=2), np.stack([y, x], axis=2)

    a, b = ops.random_resized_crop((image, mask), (20, 30), interpolation="nearest", seed=5)
    c, d = ops.random_resized_crop((image, mask), (20, 30), interpolation=("bilinear", "nearest"), seed=5)

    np.testing.assert_array_equal(a[:, :, :2], b)
    np.testing.assert_array_equal(b, d)
    assert np.abs(c[1:-1, 1:-1, :2].astype(int) - d[1:-1, 1:-1]).max() <= 5  # about one source pixel apart


def test_images_of_two_sizes_are_refused() -> None:
    pair = TensorSpec((9, 9, 3), "uint8"), TensorSpec((9, 8, 1), "uint8")
    two = RandomResizedCrop(4, 4, interpolation=("nearest",) * 2, images=2)

    with pytest.raises(SpecError, match="needs images of one size"):
        two.infer(*pair)
    with pytest.raises(ShapeError, match=r"images of one size, got \[9, 9\] and \[9, 8\]"):
        two.reference(noise(9, 9), noise(9, 8), *(np.array([2, 2], np.int32) for _ in range(3)))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"size": 0}, SpecError, "height from 1"),
        ({"scale": (0.5, 0.1)}, SpecError, "scale from small to large"),
        ({"scale": (0, 0.1)}, SpecError, "scale from"),
        ({"ratio": (2, 1)}, SpecError, "ratio from small to large"),
        ({"ratio": 2.5}, PlanTypeError, "ratio as two numbers"),
        ({"interpolation": "area"}, SpecError, "random_resized_crop needs interpolation from bilinear"),
        ({"interpolation": ("nearest", "nearest")}, SpecError, "one interpolation, or one per image"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ops.random_resized_crop(noise(9, 9), **{"size": 4, **options})
