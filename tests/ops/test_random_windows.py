"""random_resized_crop and random_erasing: torchvision's laws restated, and what is done with the windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import PlanTypeError, ShapeError, SpecError
from gpupipe.ops._shared.samples import picture
from gpupipe.ops.random_erasing import erased_windows
from gpupipe.ops.random_resized_crop import RandomResizedCrop, crop_windows
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec
from gpupipe.transform import machine
from tests.ops.refusals import refused

SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)


def numbers(count: int, seed: int = 3) -> BatchRng:
    """Numbers for elements 0, 1, 2, ..."""
    return BatchRng(seed, 0, np.arange(count, dtype=np.uint64), site=7)


def sides(u: list[float], attempt: int, area: int, scale: Any, ratio: Any) -> tuple[int, int]:
    """Two lengths that the numbers of an attempt say: of this ratio, and of a share of an area together."""
    part = area * (scale[0] + u[attempt] * (scale[1] - scale[0]))
    low, high = math.log(ratio[0]), math.log(ratio[1])
    shape = math.exp(low + u[10 + attempt] * (high - low))
    return round(math.sqrt(part * shape)), round(math.sqrt(part / shape))


def by_the_book(u: list[float], height: int, width: int) -> tuple[int, int, int, int]:
    """The law as its description in words says it, for one image, with the same numbers."""
    for attempt in range(10):
        w, h = sides(u, attempt, height * width, SCALE, RATIO)
        if 0 < w <= width and 0 < h <= height:
            return int(u[20] * (height - h + 1)), int(u[21] * (width - w + 1)), h, w
    h, w = height, width
    if width / height < RATIO[0]:
        h = round(width / RATIO[0])
    elif width / height > RATIO[1]:
        w = round(height * RATIO[1])
    return (height - h) // 2, (width - w) // 2, h, w


@pytest.mark.parametrize(
    ("height", "width"), [(375, 500), (500, 375), (64, 64), (100, 1000), (1000, 90), (1, 1), (3, 2)]
)
def test_windows_follow_the_description(height: int, width: int) -> None:
    u = numbers(500).uniform(22)

    start, shape = crop_windows(u, np.tile([height, width], (500, 1)), SCALE, RATIO)

    expected = [by_the_book(row, height, width) for row in u.tolist()]
    assert np.concatenate([start, shape], axis=1).tolist() == [list(window) for window in expected]
    assert start.dtype == shape.dtype == np.int32


def test_the_pixels_are_crop_then_resize() -> None:
    x = picture(61, 83)

    window = (np.array(pair, np.int32) for pair in ([5, 9], [40, 50], [24, 31]))

    got = RandomResizedCrop(24, 31).reference(x, *window)

    expected = Image.fromarray(x[5:45, 9:59]).resize((31, 24), Image.Resampling.BILINEAR)
    assert got.dtype == np.uint8
    np.testing.assert_array_equal(got, np.asarray(expected))


BACKENDS = ["numpy"] + ["dali"] * machine.has_dali()


def restated(u: Any, height: int, width: int, scale: Any, ratio: Any) -> tuple[int, int, int, int]:
    """RandomErasing.get_params of torchvision with given uniform numbers: (y, x, h, w); nothing is erased by zeros."""
    for attempt in range(10):
        h, w = sides(u, attempt, height * width, scale, ratio)
        if h < height and w < width:
            return (int(u[20] * (height - h + 1)), int(u[21] * (width - w + 1)), h, w) if h and w else (0, 0, 0, 0)
    return 0, 0, 0, 0


@pytest.mark.parametrize(
    ("scale", "ratio"), [((0.02, 0.33), (0.3, 3.3)), ((0.5, 1.0), (0.2, 5.0)), ((0.0, 0.01), (1.0, 1.0))]
)
def test_rectangles_are_torchvisions(scale: Any, ratio: Any) -> None:
    u = np.random.default_rng(0).random((500, 22))
    hw = np.random.default_rng(1).integers(1, 90, (500, 2)).astype(np.int32)

    start, shape = erased_windows(u, hw, scale, ratio)

    for row, (height, width), got in zip(u, hw.tolist(), np.concatenate([start, shape], 1).tolist(), strict=True):
        assert tuple(got) == restated(row, height, width, scale, ratio)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_one_rectangle_is_filled_and_nothing_else_changes(backend: Any, layout: str) -> None:
    x = np.random.default_rng(0).integers(1, 200, (12, 20, 30, 3), dtype=np.uint8)

    def chain(image: Any) -> Any:
        if layout == "CHW":
            image = ops.transpose(image)
        image = ops.random_erasing(image, 0.7, value=(0, 250, 251))
        return ops.transpose(image, "HWC") if layout == "CHW" else image

    got = list(gp.Dataset.from_tensor_slices(x).map(chain).with_options(gp.Options(device="cpu", backend=backend)))

    erased = 0
    for image, source in zip(got, x, strict=True):
        changed = (image != source).any(axis=2)
        if not changed.any():
            continue
        erased += 1
        y, left = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
        assert changed[y[0] : y[-1] + 1, left[0] : left[-1] + 1].all()
        assert (image[changed] == [0, 250, 251]).all()
    assert 0 < erased < 12


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_array_can_be_said_to_be_chw(backend: Any) -> None:
    x = np.ones((8, 3, 40, 50), np.float32)
    ds = gp.Dataset.from_tensor_slices(x).map(lambda i: ops.random_erasing(i, 1, (0.3, 0.3), (1, 1), layout="CHW"))

    for image in ds.with_options(gp.Options(device="cpu", backend=backend)):
        # sqrt(0.3 * 2000) = 24.5: 24 rows and columns of each of the 3 channels
        assert (image == 0).sum() == 3 * 24 * 24


def test_eager_calls_leave_their_input_alone() -> None:
    x = np.ones((9, 9, 1), np.uint8)

    erased = ops.random_erasing(x, 1, (0.2, 0.3), seed=1)

    assert erased.min() == 0
    assert x.min() == 1


X = np.ones((9, 9, 3), np.uint8)
PLACE = np.array([2, 2], np.int32)
TWO = RandomResizedCrop(4, 4, interpolation=("nearest",) * 2, images=2)
OF_TWO_SIZES = TensorSpec((9, 9, 3), "uint8"), TensorSpec((9, 8, 1), "uint8")


def resized_crop(**settings: Any) -> Any:
    return ops.random_resized_crop(X, 4, **settings)


test_mistakes_are_plan_errors = refused(
    (SpecError, "height from 1", lambda: ops.random_resized_crop(X, 0)),
    (SpecError, "scale from small to large", lambda: ops.random_resized_crop(X, 4, scale=(0.5, 0.1))),
    (SpecError, "scale from", lambda: ops.random_resized_crop(X, 4, scale=(0, 0.1))),
    (SpecError, "ratio from small to large", lambda: ops.random_resized_crop(X, 4, ratio=(2, 1))),
    (PlanTypeError, "ratio as two numbers", lambda: ops.random_resized_crop(X, 4, ratio=2.5)),  # type: ignore[call-overload]
    (SpecError, "random_resized_crop needs interpolation from bil", lambda: resized_crop(interpolation="area")),
    (SpecError, "one interpolation, or one per image", lambda: resized_crop(interpolation=("nearest",) * 2)),
    (SpecError, "needs images of one size", lambda: TWO.infer(*OF_TWO_SIZES)),
    (ShapeError, r"images of one size, got \[9, 9\] and \[9, 8\]", lambda: TWO.reference(X, X[:, :8], *[PLACE] * 3)),
    (SpecError, "values that fit the image", lambda: ops.random_erasing(X, value=300)),
    (SpecError, "values that fit the image", lambda: ops.random_erasing(X, value=0.5)),
    (SpecError, "one value or one per channel", lambda: ops.random_erasing(X, value=(1, 2))),
    (SpecError, "a number for value, or one per channel, got 'random'", lambda: ops.random_erasing(X, value="random")),  # type: ignore[arg-type]
    (SpecError, "scale from small to large", lambda: ops.random_erasing(X, scale=(0.5, 0.1))),
    (SpecError, "p from 0 to 1", lambda: ops.random_erasing(X, 1.5)),
    (PlanTypeError, "needs a number for value", lambda: ops.random_erasing(X, value=(None,))),  # type: ignore[arg-type]
)
