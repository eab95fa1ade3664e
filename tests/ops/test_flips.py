"""The four flips: what they do, how often, and what the optimizer may conclude."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from gpupipe import ops
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.ops._shared.resize_flip import ResizeFlip
from gpupipe.ops._shared.reverse import Reverse
from gpupipe.ops._shared.samples import noise
from gpupipe.ops.random_flip_left_right import RandomFlipLeftRight
from gpupipe.ops.random_flip_up_down import RandomFlipUpDown
from gpupipe.ops.resize import Resize
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

X = np.arange(2 * 3, dtype=np.uint8).reshape(2, 3, 1)
IMAGE = TensorSpec((2, 3, 1), "uint8", "HWC")


def test_flips_do_what_their_names_say() -> None:
    assert ops.flip_left_right(X)[:, :, 0].tolist() == [[2, 1, 0], [5, 4, 3]]
    assert ops.flip_up_down(X)[:, :, 0].tolist() == [[3, 4, 5], [0, 1, 2]]
    np.testing.assert_array_equal(ops.random_flip_left_right(X, p=1), ops.flip_left_right(X))
    np.testing.assert_array_equal(ops.random_flip_up_down(X, p=1), ops.flip_up_down(X))
    np.testing.assert_array_equal(ops.random_flip_left_right(X, p=0), X)


@pytest.mark.tf
def test_tensorflow_flips_the_same(tf: Any) -> None:
    x = noise(5, 8, dtype="float32")

    np.testing.assert_array_equal(ops.flip_left_right(x), tf.image.flip_left_right(x).numpy())
    np.testing.assert_array_equal(ops.flip_up_down(x), tf.image.flip_up_down(x).numpy())


@pytest.mark.parametrize("cls", [RandomFlipLeftRight, RandomFlipUpDown])
@pytest.mark.parametrize("p", [0, 0.1, 0.5, 1])
def test_a_share_p_is_mirrored(cls: Any, p: float) -> None:
    count = 10_000
    rng = BatchRng(1, 0, np.arange(count, dtype=np.uint64), site=2)

    (mirror,) = cls(p).draw(rng, np.tile([9, 9], (count, 1)))

    assert mirror.dtype == np.int32
    assert set(np.unique(mirror)) <= {0, 1}
    assert abs(mirror.mean() - p) <= 5 * math.sqrt(p * (1 - p) / count)


def test_the_probability_may_differ_from_row_to_row() -> None:
    rng = BatchRng(1, 0, np.arange(4, dtype=np.uint64))

    (mirror,) = RandomFlipLeftRight(np.array([0.0, 1.0, 0.0, 1.0])).draw(rng, np.tile([9, 9], (4, 1)))

    assert mirror.tolist() == [0, 1, 0, 1]


def test_a_resized_image_is_mirrored_where_it_is_said() -> None:
    x, size = noise(4, 6), np.array([2, 3], np.int32)
    op = ResizeFlip(Resize(2, 3))

    np.testing.assert_array_equal(op.reference(x, size, np.array(0)), ops.resize(x, (2, 3)))
    np.testing.assert_array_equal(op.reference(x, size, np.array(1)), ops.resize(x, (2, 3))[:, ::-1])


def test_two_flips_cancel() -> None:
    twice = Reverse(columns=True).merge(Reverse(columns=True))
    turned = Reverse(columns=True).merge(Reverse(lines=True))

    assert twice is not None
    assert twice.is_identity(IMAGE)
    assert turned is not None
    assert turned == Reverse(columns=True, lines=True)
    np.testing.assert_array_equal(turned.reference(X), X[::-1, ::-1])
    assert not turned.is_identity(IMAGE)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(SpecError, match="p from 0 to 1, got"):
        ops.random_flip_left_right(X, p=1.5)
    with pytest.raises(PlanTypeError, match="a number for p"):
        ops.random_flip_up_down(X, p="often")
    with pytest.raises(SpecError, match="flip_left_right needs an image"):
        ops.flip_left_right(np.zeros((3, 4), np.uint8))
    with pytest.raises(SpecError, match="random_flip_up_down needs 1 images, got 2"):
        RandomFlipUpDown().infer(IMAGE, IMAGE)
