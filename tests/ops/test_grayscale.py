"""rgb_to_grayscale and grayscale_to_rgb, against weights worked out by hand, TensorFlow and Pillow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpupipe import ops
from gpupipe.errors import ShapeError, SpecError
from gpupipe.ops.grayscale_to_rgb import GrayscaleToRgb
from gpupipe.ops.rgb_to_grayscale import RgbToGrayscale
from gpupipe.spec import TensorSpec

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


def test_the_wrong_number_of_channels_is_refused_before_and_while_running() -> None:
    with pytest.raises(SpecError, match="needs an image of 3 channels"):
        RgbToGrayscale("uint8").infer(TensorSpec((4, 4, 1), "uint8"))
    with pytest.raises(SpecError, match="needs an image of 1 channel"):
        GrayscaleToRgb().infer(TensorSpec((4, 4, 3), "uint8"))
    with pytest.raises(ShapeError, match="3 channels, got 1; decode with channels=3"):
        RgbToGrayscale("uint8").reference(IMAGE[:, :, :1])
    with pytest.raises(ShapeError, match="1 channel, got 3; decode with channels=1"):
        GrayscaleToRgb().reference(IMAGE)
