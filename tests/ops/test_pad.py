"""pad, resize_with_pad, five_crop and ten_crop against values by hand, NumPy, torchvision's code and tf.image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import PlanTypeError, ShapeError, SpecError
from tests.ops.originals import chw, hwc
from tests.ops.refusals import refused
from tests.ops.test_affine import BACKENDS, COUNT, photograph, tv
from tests.ops.value_chains import on

__all__ = ["tv"]  # a fixture

LINE = np.array([[[1], [2], [3]]], np.uint8)
X = np.random.default_rng(0).integers(0, 256, (4, 6, 7, 3), dtype=np.uint8)
MODES = {"constant": [0, 0, 1, 2, 3, 0, 0], "edge": [1, 1, 1, 2, 3, 3, 3]}
ONE: Any = 1
MODES |= {"reflect": [3, 2, 1, 2, 3, 2, 1], "symmetric": [2, 1, 1, 2, 3, 3, 2]}


@pytest.mark.parametrize("mode", MODES)
def test_two_pixels_on_each_side(mode: str) -> None:
    np.testing.assert_array_equal(ops.pad(LINE, (2, 0), padding_mode=mode).ravel(), MODES[mode])


def test_padding_goes_from_the_left_clockwise() -> None:
    got = ops.pad(LINE, (1, 2, 0, 1), fill=9)[:, :, 0]

    np.testing.assert_array_equal(got, [[9, 9, 9, 9], [9, 9, 9, 9], [9, 1, 2, 3], [9, 9, 9, 9]])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("number", range(COUNT))
def test_pad_gives_the_pixels_of_torchvision(number: int, mode: str, tv: Any) -> None:
    x = photograph(number)
    for draw in range(COUNT):
        rng = np.random.default_rng(100 * number + draw)
        padding = rng.integers(0, 20, (1, 2, 4)[draw % 3]).tolist()
        given: Any = padding[0] if draw % 3 == 0 and draw % 2 else padding

        got = ops.pad(x, given, fill=7 if mode == "constant" else 0, padding_mode=mode)

        theirs = tv.pad(chw(x), given, fill=7 if mode == "constant" else 0, padding_mode=mode)
        np.testing.assert_array_equal(got, hwc(theirs))


@pytest.mark.parametrize("method", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("number", range(COUNT))
def test_resize_with_pad_is_tensorflows(number: int, method: str, tf: Any) -> None:
    x = photograph(number)
    for draw in range(COUNT):
        height, width = np.random.default_rng(100 * number + draw).integers(20, 150, 2).tolist()

        got = ops.resize_with_pad(x, height, width, method)

        theirs = tf.image.resize_with_pad(x, height, width, method).numpy()
        assert got.dtype == theirs.dtype
        if method == "nearest":
            assert (got != theirs).mean() < 0.05  # see `resize`: of two pixels as near TensorFlow takes either
        else:
            np.testing.assert_allclose(got, theirs, rtol=0, atol=0.1)  # TensorFlow's weights are float32


def test_a_letterbox_has_its_colour_on_two_sides() -> None:
    got = ops.resize_with_pad(X[0], 14, 20, fill=(1, 2, 3))

    np.testing.assert_array_equal(got[:, :1], np.broadcast_to((1, 2, 3), (14, 1, 3)))
    np.testing.assert_array_equal(got[:, 17:], np.broadcast_to((1, 2, 3), (14, 3, 3)))
    np.testing.assert_array_equal(got[:, 1:17], ops.resize(X[0], (14, 16)))


def test_five_crops_by_hand() -> None:
    x = np.arange(1, 13, dtype=np.uint8).reshape(3, 4, 1)

    # upper left, upper right, lower left, lower right, middle
    assert ops.five_crop(x, (1, 2))[:, 0, :, 0].tolist() == [[1, 2], [3, 4], [9, 10], [11, 12], [6, 7]]


@pytest.mark.parametrize("number", range(COUNT))
def test_five_and_ten_crops_are_torchvisions(number: int, tv: Any) -> None:
    x = photograph(number)
    for draw in range(COUNT):
        size = np.random.default_rng(100 * number + draw).integers(1, 40, 2).tolist()

        five, ten = ops.five_crop(x, size), ops.ten_crop(x, size, vertical_flip=bool(draw % 2))

        np.testing.assert_array_equal(five, np.stack([hwc(y) for y in tv.five_crop(chw(x), size)]))
        theirs = tv.ten_crop(chw(x), size, vertical_flip=bool(draw % 2))
        np.testing.assert_array_equal(ten, np.stack([hwc(y) for y in theirs]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_op_behind_crops_takes_each_of_them(backend: str) -> None:
    ds = gp.Dataset.from_tensor_slices(X).map(lambda x: ops.normalize(ops.ten_crop(x, 3), (9, 8, 7), (2, 3, 4)))

    for x, got in zip(X, ds.with_options(on(backend)), strict=True):
        expected = [ops.normalize(crop, (9, 8, 7), (2, 3, 4)) for crop in ops.ten_crop(x, 3)]
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)


test_what_cannot_be_padded_or_cropped_is_an_error = refused(
    (PlanTypeError, "one, two or four numbers", lambda: ops.pad(LINE, (1, 2, 3))),
    (SpecError, "pad needs left from 0", lambda: ops.pad(LINE, -1)),
    (SpecError, "padding_mode from constant, edge", lambda: ops.pad(LINE, 1, padding_mode="wrap")),
    (SpecError, "at most 2 pixels of", lambda: ops.pad(LINE, (3, 0), padding_mode="reflect")),
    (SpecError, "at most", lambda: ops.pad(LINE, 4, padding_mode="symmetric")),
    (SpecError, "a fill that fits the image", lambda: ops.pad(LINE, 1, 256)),
    (SpecError, "convert it first with ops.cast", lambda: ops.pad(LINE.astype(np.int64), 1, padding_mode="edge")),
    (SpecError, "as large as its crops, got 7 of 6", lambda: ops.five_crop(X[0], (7, 2))),
    (SpecError, "ten_crop needs height from 1", lambda: ops.ten_crop(X[0], 0)),
    (PlanTypeError, "needs one image, got a tuple", lambda: ops.five_crop((X[0], X[1]), 2)),
    (PlanTypeError, "vertical_flip as True or False", lambda: ops.ten_crop(X[0], 2, vertical_flip=ONE)),
    (SpecError, "resize_with_pad needs height from 1", lambda: ops.resize_with_pad(X[0], 0, 5)),
    (SpecError, "interpolation from", lambda: ops.resize_with_pad(X[0], 5, 5, "area")),
    (ShapeError, "of which a pixel is left, got 1x7 for 2x2", lambda: ops.resize_with_pad(X[0, :1], 2, 2)),
)


@pytest.mark.parametrize("fill", [16777217, 2**31 - 1])
def test_a_fill_that_float32_does_not_hold_is_refused(fill: int) -> None:
    """DALI's slice and erase take float32: they would put another number there, 2**31 as a negative one."""
    mask = np.ones((8, 9, 1), np.int32)
    calls: list[Callable[[], Any]] = [
        lambda: ops.pad(mask, 2, fill=fill),
        lambda: ops.random_zoom_out(mask, p=1, fill=fill),
        lambda: ops.random_erasing(mask, p=1, value=fill),
        lambda: ops.pad(mask.astype(np.int64), 2, fill=2**53 + 1),
        lambda: ops.random_erasing(mask.astype(np.uint16), p=1, value=2**53 + 1),
    ]
    for call in calls:
        with pytest.raises(SpecError, match=r"2\*\*24|fit the image"):
            call()
    assert ops.pad(mask, 1, fill=1 << 24)[0, 0, 0] == 1 << 24
