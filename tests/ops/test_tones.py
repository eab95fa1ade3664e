"""invert, solarize, posterize, random_grayscale: hand-computed values, torchvision's code, Pillow, probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import DataError, SpecError
from gpupipe.graph.op import Array
from tests.ops.originals import chw, hwc, photograph, torchvision

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
}


@pytest.mark.parametrize("name", CALLS)
def test_photographs_are_as_torchvisions(name: str) -> None:
    ours, theirs = CALLS[name]
    functional = torchvision().v2.functional
    for number in PHOTOGRAPHS:
        image = photograph(number)

        expected = hwc(theirs(functional, chw(image)))

        # torch fuses the products and sums of the gray, which moves a few values across an integer
        assert_within(ours(image), expected, 1 if name == "grayscale" else 0, share=1e-3)


def test_photographs_are_solarized_and_posterized_as_torchvision_does() -> None:
    functional = torchvision().v2.functional
    for number in PHOTOGRAPHS:
        image = photograph(number)
        x, rng = chw(image), np.random.default_rng(number)
        for threshold, bits in zip(rng.uniform(0, 255, 20).tolist(), rng.integers(0, 9, 20).tolist(), strict=True):
            np.testing.assert_array_equal(ops.solarize(image, threshold), hwc(functional.solarize(x, threshold)))
            np.testing.assert_array_equal(ops.posterize(image, bits), hwc(functional.posterize(x, bits)))


def assert_within(got: Array, expected: Array, levels: float, share: float) -> None:
    """At most `share` of the values differ, by at most `levels`."""
    assert got.dtype == expected.dtype
    difference = np.abs(got.astype(np.float64) - expected)
    assert difference.max() <= levels
    assert (difference > 0).mean() <= share


def test_a_traced_parameter_is_checked_for_each_row() -> None:
    ds = gp.Dataset.from_tensor_slices([3, 9]).map(lambda bits: ops.posterize(LEVELS, bits)).batch(2)

    with pytest.raises(DataError, match=r"posterize needs bits from 0 to 8, got 9|an integer for bits from 0 to 8"):
        list(ds)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: ops.solarize(LEVELS, 256), r"solarize needs threshold from -inf to 255, got 256"),
        (lambda: ops.posterize(LEVELS, 9), r"posterize needs bits from 0 to 8, got 9"),
        (lambda: ops.random_invert(LEVELS, 1.5), r"random_invert needs p from 0 to 1, got 1.5"),
        (lambda: ops.random_grayscale(LEVELS), r"random_grayscale needs an image of 3 channels"),
        (lambda: ops.invert(LEVELS.astype(np.int32)), r"invert needs images of uint8"),
    ],
)
def test_what_is_out_of_range_is_an_error(call: Callable[[], Any], match: str) -> None:
    with pytest.raises(SpecError, match=match):
        call()
