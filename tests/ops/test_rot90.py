"""rot90 against NumPy and tf.image, with one number of turns and with one for each image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.transform import machine

X = np.arange(2 * 3, dtype=np.uint8).reshape(2, 3, 1)
BACKENDS = ["numpy"] + ["dali"] * machine.has_dali()


def on(backend: Any) -> gp.Options:
    return gp.Options(device="cpu", backend=backend)


def test_one_turn_goes_counter_clockwise() -> None:
    # 0 1 2      2 5
    # 3 4 5  ->  1 4
    #            0 3
    np.testing.assert_array_equal(ops.rot90(X)[:, :, 0], [[2, 5], [1, 4], [0, 3]])


@pytest.mark.parametrize("k", range(-5, 9))
def test_any_number_of_turns_is_tensorflows(k: int, tf: Any) -> None:
    x = np.random.default_rng(0).integers(0, 256, (4, 7, 3), dtype=np.uint8)

    np.testing.assert_array_equal(ops.rot90(x, k), tf.image.rot90(x, k).numpy())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "int32", "float32"])
def test_every_image_can_have_turns_of_its_own(backend: str, dtype: str) -> None:
    most = 200 if dtype == "float32" else int(np.iinfo(dtype).max)
    x = np.random.default_rng(1).integers(0, most, (9, 5, 7, 3), endpoint=True).astype(dtype)
    turns = np.arange(9) - 3
    ds = gp.Dataset.from_tensor_slices((x, turns)).map(ops.rot90)

    got = list(ds.with_options(on(backend)))

    assert ds.element_spec.shape == (None, None, 3)
    for image, source, k in zip(got, x, turns.tolist(), strict=True):
        np.testing.assert_array_equal(image, np.rot90(source, k))


@pytest.mark.parametrize("backend", BACKENDS)
def test_geometry_behind_a_turn_goes_by_the_turned_size(backend: str) -> None:
    x = np.random.default_rng(2).integers(0, 256, (4, 6, 9, 3), dtype=np.uint8)
    turns = np.array([0, 1, 2, 3])
    chain = gp.Dataset.from_tensor_slices((x, turns)).map(
        lambda i, k: ops.resize_with_crop_or_pad(ops.rot90(i, k), 9, 6)
    )

    got = list(chain.with_options(on(backend)))

    for image, source, k in zip(got, x, turns.tolist(), strict=True):
        np.testing.assert_array_equal(image, ops.resize_with_crop_or_pad(np.rot90(source, k), 9, 6))


def test_a_square_keeps_its_shape_whatever_the_turns_are() -> None:
    ds = gp.Dataset.from_tensor_slices((np.zeros((2, 8, 8, 3), np.uint8), np.arange(2))).map(ops.rot90)

    assert ds.element_spec.shape == (8, 8, 3)


def test_turns_by_a_feature_need_a_type_that_can_be_warped() -> None:
    with pytest.raises(
        SpecError, match="rot90 needs an image of uint8, int16, int32, float32, int8, uint16, got uint32"
    ):
        gp.Dataset.from_tensor_slices((np.zeros((2, 8, 8, 3), np.uint32), np.arange(2))).map(ops.rot90)


def test_a_number_of_turns_is_an_integer() -> None:
    with pytest.raises(PlanTypeError, match="rot90 needs an integer for k"):
        ops.rot90(X, 0.5)
