"""Levels and grays: invert, solarize, posterize, autocontrast, equalize, to gray and back, beside other libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpupipe import ops
from gpupipe.errors import ShapeError, SpecError
from gpupipe.graph.op import Array
from gpupipe.ops.grayscale_to_rgb import GrayscaleToRgb
from gpupipe.ops.rgb_to_grayscale import RgbToGrayscale
from gpupipe.spec import TensorSpec
from tests.ops.originals import chw, hwc, photograph, torchvision
from tests.ops.refusals import refused

PHOTOGRAPHS = range(3)
LEVELS = np.array([[[0], [63], [64], [127], [128], [200], [255]]], np.uint8)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (ops.invert, [255, 192, 191, 128, 127, 55, 0]),
        (lambda x: ops.solarize(x, 128), [0, 63, 64, 127, 127, 55, 0]),
        (lambda x: ops.solarize(x, 127.5), [0, 63, 64, 127, 127, 55, 0]),
        (lambda x: ops.solarize(x, 0), [255, 192, 191, 128, 127, 55, 0]),
        (lambda x: ops.solarize(x, 255), [0, 63, 64, 127, 128, 200, 0]),
        (lambda x: ops.posterize(x, 8), [0, 63, 64, 127, 128, 200, 255]),
        (lambda x: ops.posterize(x, 2), [0, 0, 64, 64, 128, 192, 192]),
        (lambda x: ops.posterize(x, 0), [0, 0, 0, 0, 0, 0, 0]),
    ],
)
def test_levels_by_hand(call: Callable[[Any], Any], expected: list[int]) -> None:
    assert call(LEVELS).ravel().tolist() == expected


def test_floats_by_hand() -> None:
    x = np.array([[[0], [0.25], [0.5], [1]]], np.float32)

    assert ops.invert(x).ravel().tolist() == [1, 0.75, 0.5, 0]
    assert ops.solarize(x, 0.5).ravel().tolist() == [0, 0.25, 0.5, 0]
    assert ops.posterize(x, 1).ravel().tolist() == [0, 0, 0.5, 0.5]
    assert ops.invert(np.array([[[0], [1000]]], np.uint16)).ravel().tolist() == [65535, 64535]
    assert ops.posterize(np.array([[[255], [65535]]], np.uint16), 8).ravel().tolist() == [0, 65280]


def test_gray_by_hand() -> None:
    x = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [10, 20, 30]]], np.uint8)

    # 0.2989, 0.587 and 0.114 of 255 are 76.2, 149.7 and 29.1; 2.989 + 11.74 + 3.42 is 18.1
    assert ops.random_grayscale(x, 1).tolist() == [[[76] * 3, [149] * 3, [29] * 3, [18] * 3]]
    assert ops.random_grayscale(x, 0) is x


CALLS: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "invert": (ops.invert, lambda F, x: F.invert(x)),
    "solarize": (lambda x: ops.solarize(x, 100), lambda F, x: F.solarize(x, 100)),
    "posterize": (lambda x: ops.posterize(x, 3), lambda F, x: F.posterize(x, 3)),
    "grayscale": (lambda x: ops.random_grayscale(x, 1), lambda F, x: F.rgb_to_grayscale(x, num_output_channels=3)),
    "autocontrast": (ops.autocontrast, lambda F, x: F.autocontrast(x)),
    "equalize": (ops.equalize, lambda F, x: F.equalize(x)),
}


@pytest.mark.parametrize("name", CALLS)
def test_photographs_are_as_torchvisions(name: str) -> None:
    ours, theirs = CALLS[name]
    functional = torchvision().v2.functional
    for number in PHOTOGRAPHS:
        image = photograph(number) // 2 + 30  # uses only a part of the range

        expected = hwc(theirs(functional, chw(image)))

        got = ours(image)
        assert got.dtype == expected.dtype
        # torch fuses the products and sums of the gray, which moves a few values across an integer
        difference = np.abs(got.astype(int) - expected)
        assert difference.max() <= (name == "grayscale") and (difference > 0).mean() <= 1e-3


def test_photographs_are_solarized_and_posterized_as_torchvision_does() -> None:
    functional = torchvision().v2.functional
    for number in PHOTOGRAPHS:
        image = photograph(number)
        x, rng = chw(image), np.random.default_rng(number)
        for threshold, bits in zip(rng.uniform(1, 255, 20).tolist(), rng.integers(0, 9, 20).tolist(), strict=True):
            np.testing.assert_array_equal(ops.solarize(image, threshold), hwc(functional.solarize(x, threshold)))
            np.testing.assert_array_equal(ops.posterize(image, bits), hwc(functional.posterize(x, bits)))


test_what_is_out_of_range_is_an_error = refused(
    (SpecError, r"solarize needs threshold from -inf to 255, got 256", lambda: ops.solarize(LEVELS, 256)),
    (SpecError, r"posterize needs bits from 0 to 8, got 9", lambda: ops.posterize(LEVELS, 9)),
    (SpecError, r"random_invert needs p from 0 to 1, got 1.5", lambda: ops.random_invert(LEVELS, 1.5)),
    (SpecError, r"random_grayscale needs an image of 3 channels", lambda: ops.random_grayscale(LEVELS)),
    (SpecError, r"invert needs images of uint8", lambda: ops.invert(LEVELS.astype(np.int32))),
    (SpecError, r"autocontrast needs images of uint8", lambda: ops.autocontrast(np.zeros((2, 2, 1), np.int32))),
    (SpecError, r"random_equalize needs p from 0 to 1, got -1", lambda: ops.random_equalize(column(1), -1)),
)


def column(*levels: int) -> Array:
    return np.array(levels, np.uint8).reshape(-1, 1, 1)


def test_autocontrast_by_hand() -> None:
    assert ops.autocontrast(column(50, 72, 94)).ravel().tolist() == [0, 127, 255]  # 22 / (44 / 255) is 127.5
    assert ops.autocontrast(column(7, 7)).ravel().tolist() == [7, 7]
    assert ops.autocontrast(column(0, 255, 3)).ravel().tolist() == [0, 255, 3]
    assert ops.autocontrast(np.array([[[0.5], [1.0], [2.5]]], np.float32)).ravel().tolist() == [0, 0.25, 1]


def test_the_highest_level_may_be_truncated_to_254_as_torchvisions_is() -> None:
    x = column(50, 100, 150)  # 100 / (100 * float32(1 / 255)) is 254.99998

    assert ops.autocontrast(x).ravel().tolist() == [0, 127, 254]
    assert hwc(torchvision().v2.functional.autocontrast(chw(x))).ravel().tolist() == [0, 127, 254]


def test_each_channel_is_stretched_alone() -> None:
    x = np.array([[[0, 10, 20], [44, 32, 20]]], np.uint8)

    assert ops.autocontrast(x).tolist() == [[[0, 0, 20], [255, 255, 20]]]


def test_equalize_by_hand() -> None:
    # 510 pixels are below the highest level: a step is 2, and (0 + 1) // 2, (255 + 1) // 2, (510 + 1) // 2 follow.
    x = np.repeat(np.array([10, 20, 30], np.uint8), 255).reshape(-1, 3, 1)

    assert np.unique(ops.equalize(x)).tolist() == [0, 128, 255]
    assert ops.equalize(column(3, 5, 7)).ravel().tolist() == [3, 5, 7]  # a step of 0 changes nothing
    assert ops.equalize(np.full((40, 40, 1), 9, np.uint8)).max() == 9


def test_a_table_that_passes_255_is_cut() -> None:
    # 509 pixels are below the highest level: a step is 1, and the highest level becomes 509.
    x = np.repeat(np.array([10, 20], np.uint8), [509, 1]).reshape(-1, 1, 1)

    assert np.unique(ops.equalize(x)).tolist() == [0, 255]


def test_floats_are_stretched_as_torchvision_does() -> None:
    functional = torchvision().v2.functional
    for number in PHOTOGRAPHS:
        image = photograph(number).astype(np.float32) / np.float32(255)

        np.testing.assert_allclose(ops.autocontrast(image), hwc(functional.autocontrast(chw(image))), atol=1e-6, rtol=0)


IMAGE = np.random.default_rng(0).integers(0, 256, (64, 60, 3), dtype=np.uint8)


def test_bytes_come_back_as_bytes_toward_zero() -> None:
    x = np.array([[[255, 255, 255], [255, 0, 0], [0, 255, 0], [0, 0, 255], [0, 0, 0]]], np.uint8)

    # 0.9999, 0.2989, 0.587, 0.114 times 255.5, without fractions
    assert ops.rgb_to_grayscale(x)[0, :, 0].tolist() == [255, 76, 149, 29, 0]


@pytest.mark.tf
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_it_is_tensorflows(tf: Any, dtype: str) -> None:
    x = ops.convert_image_dtype(IMAGE, dtype)

    expected = tf.image.rgb_to_grayscale(x).numpy()

    # sums of three products may be taken in another order: a rounding of 1, or of the last bit
    np.testing.assert_allclose(ops.rgb_to_grayscale(x), expected, rtol=0, atol=1e-7 if dtype == "float32" else 1)


def test_a_gray_image_is_repeated() -> None:
    x = np.arange(6, dtype=np.uint8).reshape(2, 3, 1)

    got = ops.grayscale_to_rgb(x)

    assert got.shape == (2, 3, 3)
    assert all(np.array_equal(got[:, :, k], x[:, :, 0]) for k in range(3))


test_the_wrong_number_of_channels_is_refused_before_and_while_running = refused(
    (SpecError, "needs an image of 3 channels", lambda: RgbToGrayscale("uint8").infer(TensorSpec((4, 4, 1), "uint8"))),
    (SpecError, "needs an image of 1 channel", lambda: GrayscaleToRgb().infer(TensorSpec((4, 4, 3), "uint8"))),
    (ShapeError, "3 channels, got 1; decode with", lambda: RgbToGrayscale("uint8").reference(IMAGE[:, :, :1])),
    (ShapeError, "1 channel, got 3; decode with channels=1", lambda: GrayscaleToRgb().reference(IMAGE)),
)
