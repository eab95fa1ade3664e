"""pad, resize_with_pad, five_crop and ten_crop against values by hand, NumPy, torchvision's code and tf.image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import PlanTypeError, ShapeError, SpecError
from tests.ops.test_affine import BACKENDS, COUNT, array, on, photograph, tensor, tv

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

        theirs = tv.pad(tensor(x), given, fill=7 if mode == "constant" else 0, padding_mode=mode)
        np.testing.assert_array_equal(got, array(theirs))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_padding_may_differ_from_image_to_image(backend: str, mode: str) -> None:
    sides = np.array([[0, 0, 0, 0], [1, 2, 3, 4], [5, 0, 0, 5], [0, 3, 0, 1]])
    ds = gp.Dataset.from_tensor_slices((X, sides)).map(
        lambda x, s: ops.pad(x, (s[0], s[1], s[2], s[3]), padding_mode=mode)
    )

    for x, (left, top, right, bottom), got in zip(X, sides.tolist(), ds.with_options(on(backend)), strict=True):
        expected = np.pad(x, ((top, bottom), (left, right), (0, 0)), mode=mode)  # type: ignore[call-overload]
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_more_than_the_image_has_is_not_reflected(backend: str) -> None:
    ds = gp.Dataset.from_tensor_slices((X, np.arange(4, 8))).map(
        lambda x, n: ops.pad(x, (0, n, 0, 0), padding_mode="reflect")
    )
    with pytest.raises(ShapeError, match=r"pad reflects less than the image, got .* \[6, 0, 0, 0\] for 6x7"):
        list(ds.with_options(on(backend)))


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

        np.testing.assert_array_equal(five, np.stack([array(y) for y in tv.five_crop(tensor(x), size)]))
        theirs = tv.ten_crop(tensor(x), size, vertical_flip=bool(draw % 2))
        np.testing.assert_array_equal(ten, np.stack([array(y) for y in theirs]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_crops_stand_behind_the_rows_of_a_batch(backend: str) -> None:
    expected = np.stack([ops.five_crop(x, (3, 4)) for x in X])
    before = gp.Dataset.from_tensor_slices(X).map(lambda x: ops.five_crop(x, (3, 4))).batch(4)
    after = gp.Dataset.from_tensor_slices(X).batch(4).map(lambda x: ops.five_crop(x, (3, 4)))

    np.testing.assert_array_equal(ops.five_crop(X, (3, 4)), expected)
    for ds in (before, after):
        (got,) = ds.with_options(on(backend))
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_op_behind_crops_takes_each_of_them(backend: str) -> None:
    ds = gp.Dataset.from_tensor_slices(X).map(lambda x: ops.normalize(ops.ten_crop(x, 3), (9, 8, 7), (2, 3, 4)))

    for x, got in zip(X, ds.with_options(on(backend)), strict=True):
        expected = [ops.normalize(crop, (9, 8, 7), (2, 3, 4)) for crop in ops.ten_crop(x, 3)]
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)


BAD: dict[str, tuple[Any, Any, str]] = {
    "three numbers": (PlanTypeError, lambda: ops.pad(LINE, (1, 2, 3)), "one, two or four numbers"),
    "fewer than none": (SpecError, lambda: ops.pad(LINE, -1), "pad needs left from 0"),
    "another mode": (SpecError, lambda: ops.pad(LINE, 1, padding_mode="wrap"), "padding_mode from constant, edge"),
    "a reflection too large": (SpecError, lambda: ops.pad(LINE, (3, 0), padding_mode="reflect"), "at most 2 pixels of"),
    "a mirror too large": (SpecError, lambda: ops.pad(LINE, 4, padding_mode="symmetric"), "at most"),
    "a fill too large": (SpecError, lambda: ops.pad(LINE, 1, 256), "a fill that fits the image"),
    "an edge of int64": (
        SpecError, lambda: ops.pad(LINE.astype(np.int64), 1, padding_mode="edge"), "convert it first with ops.cast"
    ),
    "crops too large": (SpecError, lambda: ops.five_crop(X[0], (7, 2)), "as large as its crops, got 7 of 6"),
    "crops of nothing": (SpecError, lambda: ops.ten_crop(X[0], 0), "ten_crop needs height from 1"),
    "crops of two images": (PlanTypeError, lambda: ops.five_crop((X[0], X[1]), 2), "needs one image, got a tuple"),
    "a flip of a number": (PlanTypeError, lambda: ops.ten_crop(X[0], 2, ONE), "vertical_flip as True or False"),
    "a size of 0": (SpecError, lambda: ops.resize_with_pad(X[0], 0, 5), "resize_with_pad needs height from 1"),
    "area": (SpecError, lambda: ops.resize_with_pad(X[0], 5, 5, "area"), "interpolation from"),
    "a line": (ShapeError, lambda: ops.resize_with_pad(X[0, :1], 2, 2), "of which a pixel is left, got 1x7 for 2x2"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_padded_or_cropped_is_an_error(name: str) -> None:
    error, call, words = BAD[name]

    with pytest.raises(error, match=words):
        call()
