"""Crops and pads against TensorFlow, torchvision's rules and hand-computed windows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpupipe import ops
from gpupipe.errors import PlanTypeError, ShapeError, SpecError
from gpupipe.graph.op import Array, Op
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.samples import noise
from gpupipe.ops.central_crop import CentralCrop
from gpupipe.ops.crop_to_bounding_box import CropToBoundingBox
from gpupipe.ops.pad_to_bounding_box import PadToBoundingBox
from gpupipe.ops.random_crop import RandomCrop
from gpupipe.ops.resize_shorter import ResizeShorter
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

SIZES = [(7, 9), (8, 5), (1, 1), (12, 13), (2, 30)]


def drawn(op: Op, *sizes: tuple[int, int]) -> list[list[list[int]]]:
    """The parameters of a batch of images of these sizes."""
    rng = BatchRng(1, 0, np.arange(len(sizes), dtype=np.uint64), site=2)
    return [part.tolist() for part in op.draw(rng, np.array(sizes, np.int32))]


@pytest.mark.tf
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_tensorflow_crops_the_same(size: tuple[int, int], tf: Any) -> None:
    x = noise(*size)
    height, width = size

    for fraction in (0.1, 0.5, 0.875, 0.9, 1.0):
        np.testing.assert_array_equal(ops.central_crop(x, fraction), tf.image.central_crop(x, fraction).numpy())
    box = (height // 3, width // 4, height - height // 3, max(1, width // 2))
    np.testing.assert_array_equal(ops.crop_to_bounding_box(x, *box), tf.image.crop_to_bounding_box(x, *box).numpy())
    box = (2, 0, height + 5, width + 1)
    np.testing.assert_array_equal(ops.pad_to_bounding_box(x, *box), tf.image.pad_to_bounding_box(x, *box).numpy())
    for target in ((4, 4), (5, 20), (20, 5), (9, 9)):
        expected = tf.image.resize_with_crop_or_pad(x, *target).numpy()
        np.testing.assert_array_equal(ops.resize_with_crop_or_pad(x, *target), expected)


NUMBERED = np.arange(1, 21, dtype=np.uint8).reshape(4, 5, 1)

WINDOWS: dict[str, tuple[Callable[[Any], Any], list[list[int]]]] = {
    "center_crop": (lambda x: ops.center_crop(x, (2, 3)), [[7, 8, 9], [12, 13, 14]]),
    "central_crop": (lambda x: ops.central_crop(x, 0.5), [[7, 8, 9], [12, 13, 14]]),  # of 5 columns 1.25 are left out
    "crop_to_bounding_box": (lambda x: ops.crop_to_bounding_box(x, 1, 2, 2, 3), [[8, 9, 10], [13, 14, 15]]),
    "slice": (lambda x: ops.slice(x, (2, 3, 0), (-1, 2, -1)), [[14, 15], [19, 20]]),
    "pad_to_bounding_box": (
        lambda x: ops.pad_to_bounding_box(x[:1, :2], 1, 2, 3, 4), [[0, 0, 0, 0], [0, 0, 1, 2], [0, 0, 0, 0]]
    ),
    "resize_with_crop_or_pad": (
        lambda x: ops.resize_with_crop_or_pad(x, 2, 7), [[0, 6, 7, 8, 9, 10, 0], [0, 11, 12, 13, 14, 15, 0]]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_by_hand(name: str) -> None:
    crop, expected = WINDOWS[name]

    assert crop(NUMBERED)[:, :, 0].tolist() == expected


def centred(x: Array, height: int, width: int) -> Array:
    """torchvision's rule in its own two steps: pad what is too small, then crop."""
    h, w = x.shape[:2]
    if h < height or w < width:
        top, left = max(height - h, 0) // 2, max(width - w, 0) // 2
        bottom, right = (max(height - h, 0) + 1) // 2, (max(width - w, 0) + 1) // 2
        x = np.pad(x, ((top, bottom), (left, right), (0, 0)))
        h, w = x.shape[:2]
    top, left = round((h - height) / 2.0), round((w - width) / 2.0)
    return x[top : top + height, left : left + width]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("target", [(1, 1), (4, 4), (5, 6), (7, 30), (13, 2)], ids=str)
def test_center_crop_rounds_like_torchvision(size: tuple[int, int], target: tuple[int, int]) -> None:
    x = noise(*size)

    np.testing.assert_array_equal(ops.center_crop(x, target), centred(x, *target))


def test_an_integer_is_a_square() -> None:
    assert ops.center_crop(noise(9, 9), 4).shape == (4, 4, 3)


def test_resize_shorter_truncates_the_longer_side() -> None:
    # 50 * 333 / 100 = 166.5 -> 166; 256 * 500 / 375 = 341.3 -> 341
    assert drawn(ResizeShorter(50), (100, 333), (333, 100), (9, 9)) == [[[50, 166], [166, 50], [50, 50]]]
    assert drawn(ResizeShorter(256), (375, 500), (500, 375)) == [[[256, 341], [341, 256]]]
    for size in SIZES:
        (((h, w),),) = drawn(ResizeShorter(30), size)
        short, long = min(size), max(size)
        assert (min(h, w), max(h, w)) == (30, int(30 * long / short))


def test_resize_shorter_keeps_integers_and_pillows_pixels() -> None:
    from PIL import Image

    x = noise(40, 60)

    got = ops.resize_shorter(x, 20)

    np.testing.assert_array_equal(got, np.asarray(Image.fromarray(x).resize((30, 20), Image.Resampling.BILINEAR)))


def test_random_crop_draws_every_offset_equally() -> None:
    count = 10_000
    rng = BatchRng(1, 0, np.arange(count, dtype=np.uint64), site=2)

    start, shape = RandomCrop(5, 6).draw(rng, np.tile([9, 14], (count, 1)))

    assert (shape == [5, 6]).all()
    for axis, places in ((0, 5), (1, 9)):  # 9 - 5 + 1, 14 - 6 + 1: both ends included
        counts = np.bincount(start[:, axis])
        assert len(counts) == places
        assert np.abs(counts - count / places).max() < 5 * math.sqrt(count / places)
    assert abs(np.corrcoef(start.T)[0, 1]) < 0.05


def test_random_crop_takes_tensorflows_size() -> None:
    assert ops.random_crop(noise(9, 9), (4, 5, 3)).shape == (4, 5, 3)
    with pytest.raises(SpecError, match="keeps all channels, got a size of 1"):
        RandomCrop(4, 5, 1).infer(TensorSpec((9, 9, 3), "uint8"))
    with pytest.raises(PlanTypeError, match="size as"):
        ops.random_crop(noise(9, 9), 4)


def test_a_padding_crop_may_miss_the_image() -> None:
    x = noise(3, 4)

    for start in ([-9, 0], [5, 0], [0, 9], [0, -9]):
        assert not Crop(pad=True).reference(x, np.array(start, np.int32), np.array([2, 2], np.int32)).any()


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (CropToBoundingBox(3, 0, 5, 5), "inside the image, got 3.5 of 7"),
        (CropToBoundingBox(0, 0, 5, 10), "inside the image, got 0.10 of 9"),
        (PadToBoundingBox(3, 0, 9, 20), "room for the image, got 7 at 3 in 9"),
        (RandomCrop(8, 5), "as large as its window, got 8 of 7"),
    ],
    ids=lambda part: part.name if isinstance(part, Op) else "",
)
def test_what_is_known_not_to_fit_is_refused_early(op: Op, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        op.infer(TensorSpec((7, 9, 3), "uint8"))


@pytest.mark.parametrize(
    "op", [CropToBoundingBox(0, 4, 5, 5), PadToBoundingBox(0, 0, 8, 9), RandomCrop(8, 9)], ids=lambda op: op.name
)
def test_what_does_not_fit_at_run_time_names_its_rows(op: Op) -> None:
    sizes = {"crop_to_bounding_box": (5, 8), "random_crop": (7, 9), "pad_to_bounding_box": (9, 9)}
    fits = {"crop_to_bounding_box": (5, 9), "random_crop": (8, 9), "pad_to_bounding_box": (8, 9)}

    with pytest.raises(ShapeError, match=op.name) as caught:
        drawn(op, fits[op.name], sizes[op.name], fits[op.name], sizes[op.name])

    assert getattr(caught.value, "rows", None) == (1, 3)


def test_numbers_may_differ_from_row_to_row() -> None:
    start, shape = drawn(CropToBoundingBox(np.array([1, 2]), 0, np.array([3, 4]), 5), (9, 9), (9, 9))

    assert start == [[1, 0], [2, 0]]
    assert shape == [[3, 5], [4, 5]]
    assert drawn(CentralCrop(np.array([0.5, 1.0])), (8, 8), (8, 8)) == [[[2, 2], [0, 0]], [[4, 4], [8, 8]]]


@pytest.mark.parametrize(
    ("function", "arguments", "error"),
    [
        (ops.central_crop, (0,), SpecError),
        (ops.central_crop, (1.5,), SpecError),
        (ops.central_crop, ("half",), PlanTypeError),
        (ops.crop_to_bounding_box, (-1, 0, 2, 2), SpecError),
        (ops.pad_to_bounding_box, (0, 0, 0, 2), SpecError),
        (ops.center_crop, ((0, 2),), SpecError),
        (ops.resize_with_crop_or_pad, (2.5, 2), PlanTypeError),
        (ops.resize_shorter, (0,), SpecError),
        (ops.resize_shorter, (4, "area"), SpecError),
        (ops.random_crop, ((0, 4),), SpecError),
    ],
)
def test_numbers_that_mean_nothing_are_refused(
    function: Any, arguments: tuple[Any, ...], error: type[Exception]
) -> None:
    with pytest.raises(error, match=function.__name__ if error is PlanTypeError else "needs|method"):
        function(noise(3, 3), *arguments)
