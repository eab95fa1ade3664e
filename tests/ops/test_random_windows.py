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
from gpupipe.ops._shared.samples import noise, picture
from gpupipe.ops.random_erasing import RandomErasing, erased_windows
from gpupipe.ops.random_resized_crop import RandomResizedCrop, crop_windows
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec
from gpupipe.transform import machine

SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)


def numbers(count: int, seed: int = 3) -> BatchRng:
    """Numbers for elements 0, 1, 2, ..."""
    return BatchRng(seed, 0, np.arange(count, dtype=np.uint64), site=7)


def by_the_book(u: list[float], height: int, width: int) -> tuple[int, int, int, int]:
    """The law as its description in words says it, for one image, with the same numbers."""
    for attempt in range(10):
        area = height * width * (SCALE[0] + u[attempt] * (SCALE[1] - SCALE[0]))
        low, high = math.log(RATIO[0]), math.log(RATIO[1])
        ratio = math.exp(low + u[10 + attempt] * (high - low))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(u[20] * (height - h + 1)), int(u[21] * (width - w + 1)), h, w
    w, h = width, height
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


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    hw = np.tile([375, 500], (64, 1))

    start, shape, size = RandomResizedCrop(9, 9).draw(numbers(64), hw)

    for row in (0, 17, 63):
        rng = BatchRng(3, 0, np.array([row], np.uint64), site=7)
        alone = RandomResizedCrop(9, 9).draw(rng, hw[:1])
        assert [part[0].tolist() for part in alone] == [part[row].tolist() for part in (start, shape, size)]


def test_the_pixels_are_crop_then_resize() -> None:
    x = picture(61, 83)

    window = (np.array(pair, np.int32) for pair in ([5, 9], [40, 50], [24, 31]))

    got = RandomResizedCrop(24, 31).reference(x, *window)

    expected = Image.fromarray(x[5:45, 9:59]).resize((31, 24), Image.Resampling.BILINEAR)
    assert got.dtype == np.uint8
    np.testing.assert_array_equal(got, np.asarray(expected))


def test_image_and_mask_get_the_same_window() -> None:
    y, x = np.mgrid[0:120, 0:100].astype(np.uint8)
    image, mask = np.stack([y, x, y], axis=2), np.stack([y, x], axis=2)

    a, b = ops.random_resized_crop((image, mask), (20, 30), interpolation="nearest", seed=5)
    c, d = ops.random_resized_crop((image, mask), (20, 30), interpolation=("bilinear", "nearest"), seed=5)

    np.testing.assert_array_equal(a[:, :, :2], b)
    np.testing.assert_array_equal(b, d)
    assert np.abs(c[1:-1, 1:-1, :2].astype(int) - d[1:-1, 1:-1]).max() <= 5  # about one source pixel apart


def test_images_of_two_sizes_are_refused() -> None:
    pair = TensorSpec((9, 9, 3), "uint8"), TensorSpec((9, 8, 1), "uint8")
    two = RandomResizedCrop(4, 4, interpolation=("nearest",) * 2, images=2)

    with pytest.raises(SpecError, match="needs images of one size"):
        two.infer(*pair)
    with pytest.raises(ShapeError, match=r"images of one size, got \[9, 9\] and \[9, 8\]"):
        two.reference(noise(9, 9), noise(9, 8), *(np.array([2, 2], np.int32) for _ in range(3)))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"size": 0}, SpecError, "height from 1"),
        ({"scale": (0.5, 0.1)}, SpecError, "scale from small to large"),
        ({"scale": (0, 0.1)}, SpecError, "scale from"),
        ({"ratio": (2, 1)}, SpecError, "ratio from small to large"),
        ({"ratio": 2.5}, PlanTypeError, "ratio as two numbers"),
        ({"interpolation": "area"}, SpecError, "random_resized_crop needs interpolation from bilinear"),
        ({"interpolation": ("nearest", "nearest")}, SpecError, "one interpolation, or one per image"),
    ],
    ids=str,
)
def test_wrong_arguments_of_crops_are_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ops.random_resized_crop(noise(9, 9), **{"size": 4, **options})


BACKENDS = ["numpy"] + ["dali"] * machine.has_dali()


def restated(u: Any, height: int, width: int, scale: Any, ratio: Any) -> tuple[int, int, int, int]:
    """RandomErasing.get_params of torchvision with given uniform numbers: (y, x, h, w); nothing is erased by zeros."""
    for attempt in range(10):
        area = height * width * (scale[0] + u[attempt] * (scale[1] - scale[0]))
        low, high = math.log(ratio[0]), math.log(ratio[1])
        shape = math.exp(low + u[10 + attempt] * (high - low))
        h, w = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if not (h < height and w < width):
            continue
        if not h or not w:
            return 0, 0, 0, 0
        return int(u[20] * (height - h + 1)), int(u[21] * (width - w + 1)), h, w
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


def test_the_share_of_images_is_the_probability() -> None:
    count = 4000
    rng = BatchRng(1, 0, np.arange(count, dtype=np.uint64), 5)

    _, shape = RandomErasing(0.3).draw(rng, np.full((count, 2), 64, np.int32))

    # 5 standard deviations of a share of 0.3 among 4000
    assert abs((shape[:, 0] > 0).mean() - 0.3) < 5 * math.sqrt(0.3 * 0.7 / count)


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


def test_mistakes_are_plan_errors() -> None:
    x = np.ones((9, 9, 3), np.uint8)
    with pytest.raises(SpecError, match="values that fit the image"):
        ops.random_erasing(x, value=300)
    with pytest.raises(SpecError, match="values that fit the image"):
        ops.random_erasing(x, value=0.5)
    with pytest.raises(SpecError, match="one value or one per channel"):
        ops.random_erasing(x, value=(1, 2))
    with pytest.raises(SpecError, match="needs a number for value, or one per channel, got 'random'"):
        ops.random_erasing(x, value="random")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="scale from small to large"):
        ops.random_erasing(x, scale=(0.5, 0.1))
    with pytest.raises(SpecError, match="p from 0 to 1"):
        ops.random_erasing(x, 1.5)
    with pytest.raises(PlanTypeError, match="needs a number for value"):
        ops.random_erasing(x, value=(None,))  # type: ignore[arg-type]
