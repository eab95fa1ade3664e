"""Parameters that are features: windows, sizes, angles and factors that differ from image to image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import ShapeError
from gpupipe.graph.host_values import HostValues
from gpupipe.graph.trace import trace
from gpupipe.graph.values import Value
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.spec import TensorSpec, flatten
from tests.chains.data import on
from tests.conformance.harness import EXECUTORS, host

HEIGHTS, WIDTHS = np.array([20, 31, 44]), np.array([50, 37, 28])
FILES = [encoded(picture(h, w), quality=90) for h, w in zip(HEIGHTS, WIDTHS, strict=True)]
BOXES = np.array([[0, 0, 20, 50], [3, 4, 9, 11], [40, 20, 4, 8]])
SIZES = np.array([7, 12, 9])


def values_of(fn: Callable[..., Any], *columns: Any) -> tuple[tuple[Value, ...], HostValues]:
    """Trace a function of these columns, row by row, and prepare one batch of them."""
    specs = [TensorSpec((), bytes) if isinstance(c[0], bytes) else TensorSpec(c.shape[1:], c.dtype) for c in columns]
    _, structure = flatten(tuple(range(len(columns))))
    traced = trace(fn, structure, specs)
    assert traced is not None
    keys = np.arange(3, dtype=np.uint64)
    return traced.outputs, HostValues(3, lambda i: list(columns[i]), lambda i: keys, seed=1, epoch=0)


def sized(data: Any, size: Any) -> Any:
    return ops.resize_shorter(ops.center_crop(ops.decode_jpeg(data, 3), (size * 2, 16)), size, "nearest")


@pytest.mark.conformance
@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize(("op", "numbers"), [(ops.decode_and_crop_jpeg, BOXES), (sized, SIZES)], ids=["window", "size"])
def test_a_feature_can_be_the_window_and_the_size(op: Any, numbers: Any, kind: str) -> None:
    ds = gp.Dataset.from_tensor_slices((FILES, numbers)).map(op, traced=True)

    for got, data, number in zip(ds.with_options(on(kind)), FILES, numbers, strict=True):
        expected = op(data, number)
        assert got.shape == expected.shape
        assert np.abs(host(got).astype(int) - expected).max() <= (8 if kind == "dali-gpu" else 0)


def test_sizes_are_known_without_a_pixel() -> None:
    (image,), values = values_of(
        lambda data, size: ops.resize(ops.decode_jpeg(data, 3), (size, 2 * size), preserve_aspect_ratio=True),
        FILES,
        SIZES,
    )

    # min(7/20, 14/50), min(12/31, 24/37), min(9/44, 18/28) of the image's size
    assert values.sizes(image).tolist() == [[6, 14], [12, 14], [9, 6]]


def test_a_feature_that_does_not_fit_blames_its_row() -> None:
    boxes = BOXES + np.array([[0, 0, 0, 0], [25, 0, 0, 0], [0, 0, 0, 0]])
    (image,), values = values_of(lambda data, box: ops.decode_and_crop_jpeg(data, box, 3), FILES, boxes)

    with pytest.raises(ShapeError, match=r"got 9x11 at \(28, 4\) of an image of 31x37") as caught:
        values.sizes(image)

    assert getattr(caught.value, "rows", None) == (1,)


IMAGES = np.stack([picture(18, 22) + np.uint8(40 * n) for n in range(3)])
SIDES = np.array([[0, 0, 0, 0], [1, 2, 3, 4], [5, 0, 0, 5]])
BOXES_OF_ONE = np.array([[0, 0, 1, 1], [0.2, 0.1, 0.7, 1.2], [0.9, 0.8, 0.1, 0.3]], np.float32)
CORNERS = [(0, 0), (21, 0), (21, 17), (0, 17)]


def shifted(x: Any, n: Any, method: str) -> Any:
    return ops.perspective(x, CORNERS, [(a + n, b) for a, b in CORNERS], method)


def padded(mode: str) -> Callable[[Any, Any], Any]:
    return lambda x, s: ops.pad(x, (s[0], s[1], s[2], s[3]), padding_mode=mode)


TRACED: dict[str, tuple[Callable[[Any, Any], Any], Any, float]] = {
    "adjust_brightness": (lambda x, delta: ops.adjust_brightness(x, delta=delta), [-0.2, 0.0, 0.3], 1),
    "adjust_contrast": (ops.adjust_contrast, [0.5, 1.0, 2.0], 1),
    "adjust_saturation": (ops.adjust_saturation, [0.5, 1.0, 2.0], 1),
    "adjust_hue": (ops.adjust_hue, [-1.0, 0.1, 0.5], 1),
    "adjust_gamma": (ops.adjust_gamma, [0.5, 1.0, 2.0], 1),
    "adjust_jpeg_quality": (ops.adjust_jpeg_quality, [0, 50, 100], 1),
    "gaussian_blur": (lambda x, n: ops.gaussian_blur(x, 5, n), [0.5, 1.0, 1.5], 1),
    "adjust_sharpness": (ops.adjust_sharpness, [0.0, 0.5, 1.5], 1),
    "clahe": (lambda x, n: ops.clahe(x, n, 4), [1.5, 3.0, 4.0], 0),
    "perspective": (lambda x, n: shifted(x, n, "bilinear"), [0, 1, 2], 0),
    "perspective, nearest": (lambda x, n: shifted(x, n, "nearest"), [0, 1, 2], 0),
    "affine, shear": (lambda x, n: ops.affine(x, shear=n), [0.0, 20.0, -30.0], 0),
    "five_crop": (ops.five_crop, [3, 4, 5], 0),
    **{f"pad, {mode}": (padded(mode), SIDES, 0) for mode in ("constant", "edge", "reflect", "symmetric")},
    "crop_and_resize": (lambda x, b: ops.crop_and_resize(x, b, crop_size=(9, 8)), BOXES_OF_ONE, 0.05),
    "crop_and_resize, nearest": (
        lambda x, b: ops.crop_and_resize(x, b, crop_size=(9, 8), method="nearest"),
        BOXES_OF_ONE,
        0,
    ),
    "random_shortest_size": (lambda x, n: ops.random_shortest_size(x, (n, n), n + 2, "nearest"), [10, 14, 30], 0),
    "scale_jitter": (lambda x, n: ops.scale_jitter(x, (n, n), (1, n / n), "nearest"), [10, 14, 30], 0),
    "elastic": (lambda x, n: ops.elastic(x, (n, n), 2.0), [0.0, 0.0, 0.0], 0),
}


@pytest.mark.conformance
@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("name", TRACED)
def test_a_feature_can_be_the_parameter(name: str, kind: str) -> None:
    if kind == "dali-gpu" and not name.startswith("adjust_"):
        pytest.skip("tests/conformance/test_ops.py has the tolerances of a GPU")
    op, numbers, room = TRACED[name]
    ds = gp.Dataset.from_tensor_slices((IMAGES, np.array(numbers))).map(op, traced=True)
    room = 48 if (kind, name) == ("dali-gpu", "adjust_jpeg_quality") else room

    for x, number, got in zip(IMAGES, np.array(numbers), ds.with_options(on(kind)), strict=True):
        expected = op(x, number)
        assert got.shape == expected.shape
        assert np.abs(host(got).astype(float) - expected).max() <= room
