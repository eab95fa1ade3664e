"""crop_and_resize and extract_patches: by hand, beside tf.image, and of any number of boxes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import PlanTypeError, ShapeError, SpecError
from gpupipe.graph.op import Array
from gpupipe.ops.crop_and_resize import CropAndResize, CropAndResizeAll
from gpupipe.ops.extract_patches import ExtractPatches
from gpupipe.transform.machine import has_dali
from tests.ops.originals import photograph
from tests.ops.refusals import refused
from tests.ops.value_chains import on

BACKENDS = ["numpy"] + ["dali"] * has_dali()
IMAGE, BOX = gp.TensorSpec((3, 3, 1), "uint8"), gp.TensorSpec((4,), "float32")
HWC = gp.TensorSpec((None, None, 3), "uint8", "HWC")
COUNTED = np.arange(20, dtype=np.int32).reshape(4, 5, 1)
X = np.arange(9, dtype=np.uint8).reshape(3, 3, 1)


def boxes(number: int, count: int = 20) -> Array:
    """Boxes inside and beyond an image, mirrored ones, and such without an area."""
    drawn = np.random.default_rng(number).uniform(-0.2, 1.2, (count, 4)).astype(np.float32)
    drawn[:3] = np.array([[0, 0, 1, 1], [0.3, 0.3, 0.3, 0.3], [1.5, 0.2, 1.9, 0.4]])
    return drawn


def test_corners_of_a_box_are_centres_of_pixels() -> None:
    assert ops.crop_and_resize(X, (0, 0, 1, 1), crop_size=3)[..., 0].tolist() == X[..., 0].tolist()
    assert ops.crop_and_resize(X, (0, 0, 1, 1), crop_size=2)[..., 0].tolist() == [[0, 2], [6, 8]]
    assert ops.crop_and_resize(X, (0.25, 0, 0.25, 1), crop_size=2)[..., 0].tolist() == [[1.5, 3.5]] * 2
    assert ops.crop_and_resize(X, (1, 1, 0, 0), crop_size=3)[..., 0].tolist() == X[::-1, ::-1, 0].tolist()
    assert ops.crop_and_resize(X, (0, 0, 1, 0.5), crop_size=1)[..., 0].tolist() == [[3.5]]  # the middle of the box
    assert ops.crop_and_resize(X, (0.25, 0.25, 1, 1), crop_size=1, method="nearest")[..., 0].tolist() == [[4]]
    assert ops.crop_and_resize(X, (0.25, 0, 0.25, 1), crop_size=3, method="nearest")[0, :, 0].tolist() == [
        3,
        4,
        5,
    ]  # 0.5 is rounded up


def test_what_lies_outside_is_the_value_and_not_mixed_with_the_edge() -> None:
    made = ops.crop_and_resize(X, [[-0.5, 0, 1, 1.25]], crop_size=(4, 6), extrapolation_value=-1)

    assert made.shape == (1, 4, 6, 1)
    assert made[0, :, :, 0].tolist() == [
        [-1] * 6, [0, 0.5, 1, 1.5, 2, -1], [3, 3.5, 4, 4.5, 5, -1], [6, 6.5, 7, 7.5, 8, -1]
    ]  # fmt: skip


@pytest.mark.tf
@pytest.mark.parametrize("method", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(24, 31), (1, 7), (1, 1)], ids=str)
def test_boxes_of_all_kinds_are_tensorflows(tf: Any, method: str, size: tuple[int, int]) -> None:
    """Bit by bit."""
    for number in range(3):
        x = photograph(number)[: 90 + number]
        given = boxes(number)
        expected = tf.image.crop_and_resize(x[None], given, [0] * 20, size, method, 7.5).numpy()

        np.testing.assert_array_equal(
            ops.crop_and_resize(x, given, crop_size=size, method=method, extrapolation_value=7.5), expected
        )


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_image_may_have_any_number_of_boxes(backend: Any) -> None:
    pairs = [(photograph(n)[:60, :50], boxes(n, 5)[: 2 + n]) for n in range(4)]
    signature = gp.TensorSpec((60, 50, 3), "uint8", "HWC"), gp.TensorSpec((None, 4), "float32")
    ragged = gp.Dataset.from_generator(lambda: iter(pairs), output_signature=signature)
    chain = ragged.map(lambda x, b: ops.crop_and_resize(x, b, crop_size=(9, 8))).with_options(on(backend))

    for (x, given), made in zip(pairs, chain, strict=True):
        np.testing.assert_array_equal(made, ops.crop_and_resize(x, given, crop_size=(9, 8)))
    assert "    host: crop_and_resize\n" in str(chain.explain())


def test_an_image_without_boxes_gives_none() -> None:
    assert ops.crop_and_resize(X, np.zeros((0, 4)), crop_size=(5, 4)).shape == (0, 5, 4, 1)


test_mistakes_are_plan_errors = refused(
    (
        SpecError,
        r"needs boxes as \[N, 4\] or \[4\], got int64\[3\]",
        lambda: ops.crop_and_resize(X, [0, 0, 1], crop_size=3),
    ),
    (
        SpecError,
        "needs boxes as numbers, .y1, x1, y2, x2. in 0..1",
        lambda: ops.crop_and_resize(X, [["a"] * 4], crop_size=3),
    ),
    (SpecError, r"needs boxes as \[N, 4\] or \[4\]", lambda: ops.crop_and_resize(X, 1.0, crop_size=3)),
    (
        SpecError,
        "crop_and_resize needs width from 1 to",
        lambda: ops.crop_and_resize(X, (0, 0, 1, 1), crop_size=(3, 0)),
    ),
    (
        PlanTypeError,
        "needs crop_size as plain integers",
        lambda: ops.crop_and_resize(X, (0, 0, 1, 1), crop_size=(3, 2.5)),
    ),
    (
        SpecError,
        'method "bilinear" or "nearest"',
        lambda: ops.crop_and_resize(X, (0, 0, 1, 1), crop_size=3, method="area"),
    ),
    (SpecError, "crop_and_resize needs boxes from", lambda: ops.crop_and_resize(X, (0, 0, 1, np.inf), crop_size=3)),
    (
        PlanTypeError,
        "for extrapolation_value",
        lambda: ops.crop_and_resize(X, (0, 0, 1, 1), crop_size=3, extrapolation_value="a"),  # type: ignore[arg-type]
    ),
    (SpecError, "needs an image of uint8", lambda: ops.crop_and_resize(X.astype(np.int64), (0, 0, 1, 1), crop_size=3)),
    (SpecError, "crop_and_resize needs an image", lambda: ops.crop_and_resize(X[0], (0, 0, 1, 1), crop_size=3)),
    (SpecError, "boxes as .N, 4", lambda: CropAndResizeAll(CropAndResize(2, 2)).infer(IMAGE, BOX)),
    (SpecError, r"as large as a patch of 5x5, got int32\[4,5,1\]", lambda: ops.extract_patches(COUNTED, 5)),
    (SpecError, "extract_patches needs sizes from 1 to", lambda: ops.extract_patches(COUNTED, 0)),
    (SpecError, "extract_patches needs strides from 1 to", lambda: ops.extract_patches(COUNTED, 2, (1, 0))),
    (SpecError, "extract_patches needs rates from 1 to", lambda: ops.extract_patches(COUNTED, 2, 1, -1)),
    (PlanTypeError, "needs sizes as one integer or .height, widt", lambda: ops.extract_patches(COUNTED, (2, 2, 2))),
    (PlanTypeError, "needs an integer for sizes, got 2.5", lambda: ops.extract_patches(COUNTED, (2, 2.5))),
    (PlanTypeError, "needs sizes as one integer", lambda: ops.extract_patches(COUNTED, "ab")),
    (SpecError, 'needs padding "VALID" or "SAME"', lambda: ops.extract_patches(COUNTED, 2, padding="full")),
    (PlanTypeError, "needs padding", lambda: ops.extract_patches(COUNTED, 2, padding=None)),  # type: ignore[arg-type]
    (SpecError, "extract_patches needs an image", lambda: ops.extract_patches(COUNTED[0], 2)),
    (SpecError, "needs padding", lambda: ExtractPatches((2, 2), (1, 1), padding="valid")),
)


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


def test_an_image_smaller_than_a_patch_is_an_error_of_its_element() -> None:
    images = [np.zeros((20, 20, 3), np.uint8), np.zeros((9, 20, 3), np.uint8)]
    ds = gp.Dataset.from_generator(lambda: iter(images), output_signature=HWC)
    items = iter(ds.map(lambda x: ops.extract_patches(x, 5, 5, 3)))

    assert next(items).shape == (2, 2, 75)
    with pytest.raises(ShapeError, match="extract_patches needs an image as large as a patch of 13x13, got 9x20"):
        next(items)
