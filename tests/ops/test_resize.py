"""resize against hand-computed values, TensorFlow's and Pillow's resizing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from gpupipe import ops
from gpupipe.errors import PlanTypeError, ShapeError, SpecError
from gpupipe.graph.op import Array
from gpupipe.ops._shared.resampling import METHODS
from gpupipe.ops._shared.samples import noise, picture
from gpupipe.ops.resize import Resize
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

SHAPES = [((61, 83), (24, 31)), ((24, 31), (61, 83)), ((40, 33), (17, 48)), ((7, 5), (7, 5)), ((1, 1), (3, 2))]
PILLOW = {"bilinear": "BILINEAR", "bicubic": "BICUBIC", "lanczos3": "LANCZOS"}


def row(values: list[float], width: int, **options: Any) -> list[float]:
    """One row of gray pixels, resized."""
    result: Array = ops.resize(np.array(values, np.float32)[None, :, None], (1, width), **options)
    return [round(float(value), 5) for value in result.ravel()]


def keeping(method: str, height: int, width: int, x: Array) -> Array:
    """Resized by torchvision's law of results."""
    op = Resize(height, width, method, antialias=True, keep_dtype=True)
    result: Array = op.reference(x, np.array([height, width], np.int32))
    return result


def test_values_computed_by_hand() -> None:
    assert row([0, 1], 4) == [0, 0.25, 0.75, 1]
    assert row([0, 1, 2, 3], 2) == [0.5, 2.5]
    assert row([0, 10, 20, 30, 40], 2) == [7.5, 32.5]  # centres 1.25 and 3.75, that is 0.75 and 3.25 pixels
    assert row([1, 2, 3, 4, 5], 2, method="nearest") == [2, 4]
    assert row([1, 2, 3, 4], 2, method="nearest") == [2, 4]  # exactly between two pixels: the later one
    assert row([1, 2], 4, method="nearest") == [1, 1, 2, 2]
    assert row([0, 3, 6], 2, method="area") == [1, 5]  # (0 + 3/2) / 1.5, (3/2 + 6) / 1.5
    assert row([4, 8], 4, method="area") == [4, 4, 8, 8]
    # Antialiased halving: weights 3, 3, 1 of 7 at the edge, where the fourth pixel of the triangle lies outside.
    assert row([7, 0, 0, 0], 2, antialias=True) == [3, 0]
    assert row([0, 0, 8, 0, 0, 0], 3, antialias=True) == [1.14286, 3, 0]
    # Keys' cubic at a quarter of a pixel: -9, 111, 29, -3 of 128; outside is left out and the rest renormalised.
    assert row([0, 0, 128, 0, 0, 0], 12, method="bicubic")[4:7] == [111, 111, 29]


@pytest.mark.tf
@pytest.mark.parametrize(("size", "target"), SHAPES, ids=str)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("antialias", [False, True], ids=["", "antialias"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_tensorflow_gives_the_same(
    size: tuple[int, int], target: tuple[int, int], method: str, antialias: bool, dtype: str, tf: Any
) -> None:
    x = noise(*size, dtype=dtype)
    expected = tf.image.resize(x, target, method=method, antialias=antialias).numpy()

    got = ops.resize(x, target, method, antialias=antialias)

    assert got.dtype == expected.dtype
    # TensorFlow's bicubic without antialias reads its kernel from a table, the rest is float32 rounding.
    atol = 0.2 if method == "bicubic" and not antialias else 0 if method == "nearest" else 2e-3
    np.testing.assert_allclose(got, expected, rtol=0, atol=atol)


@pytest.mark.tf
@pytest.mark.parametrize(("size", "target"), [((100, 333), (50, 50)), ((30, 20), (45, 45)), ((33, 100), (7, 90))])
def test_the_aspect_ratio_is_kept_like_tensorflow_does(size: tuple[int, int], target: tuple[int, int], tf: Any) -> None:
    x = picture(*size)

    got = ops.resize(x, target, preserve_aspect_ratio=True)

    expected = tf.image.resize(x, target, preserve_aspect_ratio=True).numpy()
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-3)


@pytest.mark.parametrize(("size", "target"), SHAPES, ids=str)
@pytest.mark.parametrize("method", PILLOW)
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_pillow_gives_the_same_where_integers_are_kept(
    size: tuple[int, int], target: tuple[int, int], method: str, channels: int
) -> None:
    x = noise(*size, channels)
    sizes = [(target[1], size[0]), target[::-1]]  # the width first, whatever this version of Pillow would choose
    planes = [Image.fromarray(np.ascontiguousarray(x[:, :, c])) for c in range(channels)]
    for wanted in sizes:
        planes = [plane.resize(wanted, Image.Resampling[PILLOW[method]]) for plane in planes]
    expected = np.stack([np.asarray(plane) for plane in planes], axis=2)

    got = keeping(method, *target, x)

    assert got.dtype == np.uint8
    # With bilinear both orders are legal: Pillow may round once in the other.
    np.testing.assert_allclose(got, expected, rtol=0, atol=1 if method == "bilinear" else 0)


@pytest.mark.parametrize("method", PILLOW)
@pytest.mark.parametrize(("size", "target"), SHAPES, ids=str)
def test_other_integers_follow_the_law_of_uint8(method: str, size: tuple[int, int], target: tuple[int, int]) -> None:
    x = picture(*size)

    got = keeping(method, *target, x.astype(np.int16))

    assert got.dtype == np.int16
    overshoot = method != "bilinear"  # int16 is not clipped to 0..255
    expected = keeping(method, *target, x).astype(int)
    difference = np.abs(got.clip(0, 255).astype(int) - expected if overshoot else got - expected)
    assert np.percentile(difference, 99) <= 1
    assert difference.max() <= (12 if overshoot else 1)


def test_floats_stay_floats_and_are_not_rounded() -> None:
    x = noise(20, 30, dtype="float32")

    got = keeping("bilinear", 7, 9, x)

    np.testing.assert_allclose(got, ops.resize(x, (7, 9), antialias=True), rtol=0, atol=1e-4)
    assert (got != np.rint(got)).any()


def test_specs_say_what_is_known() -> None:
    image = TensorSpec((None, None, 3), "uint8", "HWC")

    assert Resize(24, 31).infer(image) == TensorSpec((24, 31, 3), "float32", "HWC")
    assert Resize(24, 31, "nearest").infer(image) == TensorSpec((24, 31, 3), "uint8", "HWC")
    assert Resize(24, 31, preserve_aspect_ratio=True).infer(image) == TensorSpec((None, None, 3), "float32", "HWC")
    assert Resize().infer(image) == TensorSpec((None, None, 3), "float32", "HWC")


def test_sizes_may_differ_from_row_to_row() -> None:
    op = Resize(np.array([3, 4]), 5)

    (size,) = op.draw(BatchRng(0, 0, np.zeros(2, np.uint64)), np.array([[9, 9], [9, 9]]))

    assert size.dtype == np.int32
    assert size.tolist() == [[3, 5], [4, 5]]


def test_rows_with_impossible_sizes_are_named() -> None:
    with pytest.raises(ShapeError, match="an integer for height from 1 to 16777216, got 0") as caught:
        Resize(np.array([3, 0, 4, -1]), 5)

    assert caught.value.rows == (1, 3)
    assert str(caught.value.of_row(3)).endswith("got -1")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"size": (0, 5)}, SpecError, "height from 1"),
        ({"size": (5, -1)}, SpecError, "width from 1"),
        ({"size": (5.5, 5)}, PlanTypeError, "an integer for height"),
        ({"size": (5, 5, 3)}, PlanTypeError, "size as two numbers"),
        ({"size": (5, 5), "method": "cubic"}, SpecError, "method from area, bicubic"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ops.resize(noise(9, 9), **arguments)


@pytest.mark.parametrize("dtype", ["int64", "float64", "bool"])
def test_types_that_not_every_executor_can_resize_are_refused(dtype: str) -> None:
    with pytest.raises(SpecError, match="resize needs an image of uint8, uint16, int16, float32"):
        Resize(2, 2).infer(TensorSpec((4, 4, 1), dtype))
