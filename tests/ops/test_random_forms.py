"""Random ops whose draw is certain: each is the op of that draw, and leaves the image as it is where it is not applied.

The ops without chance are compared with values worked out by hand in the files of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpupipe import ops
from gpupipe.graph.op import Op
from gpupipe.ops._shared.samples import picture
from gpupipe.ops.random_brightness import RandomBrightness
from gpupipe.ops.random_channel_permutation import RandomChannelPermutation
from gpupipe.ops.random_channel_shift import RandomChannelShift
from gpupipe.ops.random_contrast import RandomContrast
from gpupipe.ops.random_hue import RandomHue
from gpupipe.ops.random_jpeg_quality import RandomJpegQuality
from gpupipe.ops.random_saturation import RandomSaturation

X = picture(16, 24)

ApplyWith = Callable[[Any, float], Any]

SOMETIMES: dict[str, tuple[ApplyWith, Callable[[Any], Any]]] = {
    "random_adjust_sharpness": (
        lambda x, p: ops.random_adjust_sharpness(x, 1.7, p), lambda x: ops.adjust_sharpness(x, 1.7)
    ),
    "random_autocontrast": (ops.random_autocontrast, ops.autocontrast),
    "random_clahe": (lambda x, p: ops.random_clahe(x, (2, 2), (2, 3), p), lambda x: ops.clahe(x, 2, (2, 3))),
    "random_equalize": (ops.random_equalize, ops.equalize),
    "random_gaussian_blur": (
        lambda x, p: ops.random_gaussian_blur(x, 5, (1.1, 1.1), p), lambda x: ops.gaussian_blur(x, 5, 1.1)
    ),
    "random_invert": (ops.random_invert, ops.invert),
    "random_posterize": (lambda x, p: ops.random_posterize(x, 3, p), lambda x: ops.posterize(x, 3)),
    "random_solarize": (lambda x, p: ops.random_solarize(x, 99, p), lambda x: ops.solarize(x, 99)),
}  # fmt: skip


@pytest.mark.parametrize("name", SOMETIMES)
def test_with_a_probability_of_1_it_is_the_op_and_with_0_nothing(name: str) -> None:
    sometimes, always = SOMETIMES[name]

    np.testing.assert_array_equal(sometimes(X, 1), always(X))
    np.testing.assert_array_equal(sometimes(X, 0), X)
    assert not np.array_equal(always(X), X)


FACTORS: dict[str, tuple[Op, Any, Callable[[Any], Any]]] = {
    "random_brightness": (RandomBrightness(0.3), np.float32(0.25), lambda x: ops.adjust_brightness(x, delta=0.25)),
    "random_contrast": (RandomContrast(), np.float32(1.25), lambda x: ops.adjust_contrast(x, 1.25)),
    "random_hue": (RandomHue(0.5), np.float32(0.25), lambda x: ops.adjust_hue(x, 0.25)),
    "random_jpeg_quality": (RandomJpegQuality(1, 99), np.int32(40), lambda x: ops.adjust_jpeg_quality(x, 40)),
    "random_saturation": (RandomSaturation(), np.float32(0.75), lambda x: ops.adjust_saturation(x, 0.75)),
}


@pytest.mark.parametrize("name", FACTORS)
def test_with_the_number_that_was_drawn_it_is_the_op_of_this_number(name: str) -> None:
    op, number, fixed = FACTORS[name]

    np.testing.assert_array_equal(op.reference(X, number), fixed(X))
    assert not np.array_equal(fixed(X), X)


RANGES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "random_affine": (lambda x: ops.random_affine(x, (30, 30)), lambda x: ops.affine(x, 30)),
    "random_rotation": (lambda x: ops.random_rotation(x, (30, 30)), lambda x: ops.rotate(x, 30)),
    "random_shortest_size": (lambda x: ops.random_shortest_size(x, 20), lambda x: ops.resize_shorter(x, 20)),
    "scale_jitter": (lambda x: ops.scale_jitter(x, (30, 30), (1, 1)), lambda x: ops.resize_shorter(x, 20)),
}


@pytest.mark.parametrize("name", RANGES)
def test_with_a_range_of_one_number_it_is_the_op_of_this_number(name: str) -> None:
    drawn, fixed = RANGES[name]

    np.testing.assert_array_equal(drawn(X), fixed(X))


def test_drawn_orders_and_shifts_of_channels_by_hand() -> None:
    x = np.array([[[10, 100, 200]]], np.uint8)

    assert ops.permute_channels(x, (2, 0, 1)).tolist() == [[[200, 10, 100]]]
    assert RandomChannelPermutation(3).reference(x, np.array([1, 2, 0])).tolist() == [[[100, 200, 10]]]
    assert RandomChannelShift(60).reference(x.astype(np.float32), np.array(30.0)).tolist() == [[[40, 130, 200]]]
