"""extract_patches: hand-computed patches, tf.image, and images of many sizes on every executor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import PlanError, PlanTypeError, ShapeError, SpecError
from gpupipe.ops.extract_patches import ExtractPatches
from gpupipe.transform.machine import has_dali
from tests.ops.originals import photograph

COUNTED = np.arange(20, dtype=np.int32).reshape(4, 5, 1)

# sizes, strides, rates
GRIDS: dict[str, tuple[Any, Any, Any]] = {
    "side by side": (8, 8, 1),
    "overlapping": ((5, 7), (2, 3), 1),
    "apart": (3, (7, 10), 1),
    "every pixel": ((3, 2), 1, 1),
    "with holes": ((3, 4), (4, 3), (2, 5)),
    "pixels": (1, (3, 2), 4),
    "tall": ((11, 1), (5, 1), (3, 1)),
}


def test_patches_by_hand() -> None:
    patches = ops.extract_patches(COUNTED, (2, 3), (2, 2))

    assert patches.tolist() == [
        [[0, 1, 2, 5, 6, 7], [2, 3, 4, 7, 8, 9]],
        [[10, 11, 12, 15, 16, 17], [12, 13, 14, 17, 18, 19]],
    ]
    assert ops.extract_patches(COUNTED, 2, 3, 2).tolist() == [[[0, 2, 10, 12]]]
    assert ops.extract_patches(COUNTED, 4, 4, padding="same").tolist() == [
        [
            [0, 0, 1, 2, 0, 5, 6, 7, 0, 10, 11, 12, 0, 15, 16, 17],  # of 3 columns too few, one is on the left
            [3, 4, 0, 0, 8, 9, 0, 0, 13, 14, 0, 0, 18, 19, 0, 0],
        ]
    ]


@pytest.mark.tf
@pytest.mark.parametrize("padding", ["VALID", "SAME"])
@pytest.mark.parametrize("name", GRIDS)
def test_patches_are_those_of_tensorflow(tf: Any, name: str, padding: str) -> None:
    def four(value: Any) -> list[int]:
        height, width = (value, value) if isinstance(value, int) else value
        return [1, height, width, 1]

    sizes, strides, rates = GRIDS[name]
    for number in range(20):
        x = photograph(number)[: 40 + number, : 61 - number]
        expected = tf.image.extract_patches(x[None], four(sizes), four(strides), four(rates), padding).numpy()[0]

        np.testing.assert_array_equal(ops.extract_patches(x, sizes, strides, rates, padding), expected)
        np.testing.assert_array_equal(
            ops.extract_patches(x, four(sizes), np.array(four(strides)), four(rates), padding), expected
        )


@pytest.mark.skipif(not has_dali(), reason="needs DALI")
@pytest.mark.parametrize("padding", ["VALID", "SAME"])
@pytest.mark.parametrize("name", GRIDS)
def test_images_of_many_sizes_give_the_same_patches_on_dali(name: str, padding: str) -> None:
    images = [photograph(number)[: 34 + 3 * number, : 61 - 2 * number] for number in range(12)]
    sizes, strides, rates = GRIDS[name]
    ds = gp.Dataset.from_generator(
        lambda: iter(images), output_signature=gp.TensorSpec((None, None, 3), "uint8", "HWC")
    ).map(lambda x: ops.extract_patches(x, sizes, strides, rates, padding))

    found = list(ds.with_options(gp.Options(device="cpu", backend="dali")))

    for x, patches in zip(images, found, strict=True):
        np.testing.assert_array_equal(patches, ops.extract_patches(x, sizes, strides, rates, padding))


def test_a_batch_of_images_has_patches_as_tensorflow_has_them() -> None:
    images = np.stack([photograph(n)[:32, :48] for n in range(4)])
    ds = gp.Dataset.from_tensor_slices(images).with_options(gp.Options(device="cpu"))

    (after,) = ds.batch(4).map(lambda x: ops.extract_patches(x, 16))
    (before,) = ds.map(lambda x: ops.extract_patches(x, 16)).batch(4)

    assert after.shape == (4, 2, 3, 768)
    np.testing.assert_array_equal(after, before)
    np.testing.assert_array_equal(after, ops.extract_patches(images, 16))
    assert str(ds.map(lambda x: ops.extract_patches(x, 16)).element_spec) == "uint8[2,3,768]{HWC}"


def test_an_image_smaller_than_a_patch_is_an_error_of_its_element() -> None:
    images = [np.zeros((20, 20, 3), np.uint8), np.zeros((9, 20, 3), np.uint8)]
    ds = gp.Dataset.from_generator(
        lambda: iter(images), output_signature=gp.TensorSpec((None, None, 3), "uint8", "HWC")
    ).map(lambda x: ops.extract_patches(x, 5, 5, 3))
    items = iter(ds)

    assert next(items).shape == (2, 2, 75)
    with pytest.raises(ShapeError, match="extract_patches needs an image as large as a patch of 13x13, got 9x20"):
        next(items)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: ops.extract_patches(COUNTED, 5), SpecError, r"as large as a patch of 5x5, got int32\[4,5,1\]"),
        (lambda: ops.extract_patches(COUNTED, 0), SpecError, "extract_patches needs sizes from 1 to"),
        (lambda: ops.extract_patches(COUNTED, 2, (1, 0)), SpecError, "extract_patches needs strides from 1 to"),
        (lambda: ops.extract_patches(COUNTED, 2, 1, -1), SpecError, "extract_patches needs rates from 1 to"),
        (lambda: ops.extract_patches(COUNTED, (2, 2, 2)), PlanTypeError, "needs sizes as one integer or .height, widt"),
        (lambda: ops.extract_patches(COUNTED, (2, 2.5)), PlanTypeError, "needs an integer for sizes, got 2.5"),
        (lambda: ops.extract_patches(COUNTED, "ab"), PlanTypeError, "needs sizes as one integer"),
        (lambda: ops.extract_patches(COUNTED, 2, padding="full"), SpecError, "needs padding \"VALID\" or \"SAME\""),
        (lambda: ops.extract_patches(COUNTED, 2, padding=None), PlanTypeError, "needs padding"),  # type: ignore[arg-type]
        (lambda: ops.extract_patches(COUNTED[0], 2), SpecError, "extract_patches needs an image"),
        (lambda: ExtractPatches((2, 2), (1, 1), padding="valid"), SpecError, "needs padding"),
    ],
)  # fmt: skip
def test_mistakes_are_plan_errors(call: Callable[[], Any], error: type[PlanError], match: str) -> None:
    with pytest.raises(error, match=match):
        call()
