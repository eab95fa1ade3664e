"""The ops on colours against tf.image, pixel by pixel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpupipe import ops
from gpupipe.graph.op import Array
from gpupipe.ops._shared.samples import noise, picture
from tests.ops.originals import photograph

pytestmark = pytest.mark.tf

FIXED: list[tuple[str, tuple[Any, ...]]] = [
    *(("adjust_brightness", (delta,)) for delta in (-1.0, -0.3, 0, 0.1, 0.5, 1.5)),
    *(("adjust_contrast", (factor,)) for factor in (-1.0, 0, 0.3, 1, 2.5)),
    *(("adjust_saturation", (factor,)) for factor in (-1.0, 0, 0.3, 1, 2.5)),
    *(("adjust_hue", (delta,)) for delta in (-1.0, -0.6, -0.1, 0, 0.05, 1 / 3, 0.5, 1)),
    *(("adjust_gamma", args) for args in ((), (0,), (0.45,), (2.2, 1.3))),
    ("per_image_standardization", ()),
]
COLOURS_ONLY = ("adjust_saturation", "adjust_hue")


def images(channels: int) -> Iterator[Array]:
    """Images of every type, with extremes, plain rows, and one pixel alone."""
    x = noise(48, 36, channels)
    x[0], x[1], x[2] = 0, 255, 7
    x[3, :, 0] = 255
    x[4] = np.where(x[4] > 127, 255, 0)
    yield x
    yield x[:1, :1]
    yield x[10:11, 10:11]
    yield x.astype(np.uint16) * np.uint16(257)
    yield x.astype(np.float32) / np.float32(255)
    yield np.random.default_rng(1).uniform(-1, 2, (20, 30, channels)).astype(np.float32)


def assert_close(got: Array, expected: Array, name: str) -> None:
    """uint8 equal but for rare steps of 1; uint16 within 1; floats within a few roundings."""
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    if got.dtype.kind == "f":
        # Sums, quotients and powers of another order: a few units of the last place of values up to about 4.
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=4e-6, err_msg=name)
        return
    difference = np.abs(got.astype(int) - expected.astype(int))
    assert difference.max() <= 1, name
    # A value that TensorFlow's rounding puts on the other side of an integer; in 16 bits there are 256 times as many.
    assert (difference > 0).mean() <= (0.001 if got.dtype == np.uint8 else 0.05), name


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("name", "args"), FIXED, ids=lambda value: value if isinstance(value, str) else str(value))
def test_it_is_tensorflows(tf: Any, name: str, args: tuple[Any, ...], channels: int) -> None:
    if name in COLOURS_ONLY and channels == 1:
        with pytest.raises(tf.errors.InvalidArgumentError, match="3 channels"):
            getattr(tf.image, name)(next(images(1)), *args)
        return
    for x in images(channels):
        got = getattr(ops, name)(x, *args)

        assert_close(got, getattr(tf.image, name)(tf.constant(x), *args).numpy(), f"{name}{args} of {x.dtype}{x.shape}")


@pytest.mark.parametrize(("name", "args"), FIXED, ids=lambda value: value if isinstance(value, str) else str(value))
def test_of_a_batch_too(tf: Any, name: str, args: tuple[Any, ...]) -> None:
    x = np.stack([noise(9, 8), picture(9, 8), np.full((9, 8, 3), 201, np.uint8)])

    got = getattr(ops, name)(x, *args)

    assert_close(got, getattr(tf.image, name)(tf.constant(x), *args).numpy(), name)


@pytest.mark.parametrize("name", ["rgb_to_hsv", "hsv_to_rgb"])
def test_hsv_is_tensorflows(tf: Any, name: str) -> None:
    for x in images(3):
        if x.dtype.kind == "f":
            got = getattr(ops, name)(x)

            np.testing.assert_allclose(got, getattr(tf.image, name)(x).numpy(), rtol=0, atol=3e-7)


@pytest.mark.parametrize("quality", [0, 1, 10, 50, 75, 95, 100])
def test_jpeg_quality_is_tensorflows_with_the_accurate_transform(tf: Any, quality: int) -> None:
    for x in (picture(64, 80), picture(31, 18), noise(37, 45), noise(1, 1), picture(20, 30, 1), noise(9, 7, 1)):
        for image in (x, x.astype(np.uint16) * np.uint16(257), x.astype(np.float32) / np.float32(200)):
            expected = tf.image.adjust_jpeg_quality(image, quality, dct_method="INTEGER_ACCURATE").numpy()

            np.testing.assert_array_equal(ops.adjust_jpeg_quality(image, quality), expected)


@pytest.mark.parametrize("name", ["adjust_gamma", "adjust_jpeg_quality"])
def test_photographs_with_several_draws_each_are_tensorflows(tf: Any, name: str) -> None:
    for number in range(3):
        x, rng = photograph(number)[:64, : 60 + number], np.random.default_rng(number)
        for draw in range(6):
            if name == "adjust_gamma":
                args = tuple(rng.uniform((0.2, 0.5), (3, 1.5)).tolist())

                assert_close(ops.adjust_gamma(x, *args), tf.image.adjust_gamma(x, *args).numpy(), f"{name}{args}")
            else:
                quality = int(rng.integers(0, 101))
                expected = tf.image.adjust_jpeg_quality(x, quality, dct_method="INTEGER_ACCURATE").numpy()

                np.testing.assert_array_equal(ops.adjust_jpeg_quality(x, quality), expected, f"{quality}, {draw}")


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("random_brightness", (0.0,)),
        ("random_contrast", (0.7, np.nextafter(np.float32(0.7), np.float32(1)).item())),
        ("random_saturation", (0.7, np.nextafter(np.float32(0.7), np.float32(1)).item())),
        ("random_hue", (0.0,)),
        ("random_jpeg_quality", (90, 91)),
    ],
)
def test_random_forms_of_a_range_of_one_number_are_tensorflows(tf: Any, name: str, args: tuple[Any, ...]) -> None:
    x = picture(16, 24)

    got = getattr(ops, name)(x, *args, seed=1)

    # tf.image's random_jpeg_quality decodes with the fast transform: up to 5 levels off at quality 90
    room = 5 if "jpeg" in name else 0
    assert np.abs(got.astype(int) - getattr(tf.image, name)(x, *args, seed=1).numpy()).max() <= room
