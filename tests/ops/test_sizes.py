"""Resizing and cropping: by hand, as TensorFlow, Pillow and torchvision do, and sizes that are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import PlanError, PlanTypeError, ShapeError, SpecError
from gpupipe.graph.op import Array, Op
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.resampling import METHODS
from gpupipe.ops._shared.samples import noise, picture
from gpupipe.ops.central_crop import CentralCrop
from gpupipe.ops.crop_to_bounding_box import CropToBoundingBox
from gpupipe.ops.pad_to_bounding_box import PadToBoundingBox
from gpupipe.ops.random_crop import RandomCrop
from gpupipe.ops.random_shortest_size import RandomShortestSize
from gpupipe.ops.resize import Resize
from gpupipe.ops.resize_shorter import ResizeShorter
from gpupipe.ops.scale_jitter import ScaleJitter
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec
from gpupipe.transform.machine import has_dali
from tests.ops.originals import chw, hwc, photograph, torchvision

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
def test_wrong_sizes_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ops.resize(noise(9, 9), **arguments)


@pytest.mark.parametrize("dtype", ["int64", "float64", "bool"])
def test_types_that_not_every_executor_can_resize_are_refused(dtype: str) -> None:
    with pytest.raises(SpecError, match="resize needs an image of uint8, uint16, int16, float32"):
        Resize(2, 2).infer(TensorSpec((4, 4, 1), dtype))


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


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("target", [(1, 1), (4, 4), (5, 6), (7, 30), (13, 2)], ids=str)
def test_center_crop_is_torchvisions(size: tuple[int, int], target: tuple[int, int]) -> None:
    x = noise(*size)

    theirs = hwc(torchvision().v2.functional.center_crop(chw(x), list(target)))
    np.testing.assert_array_equal(ops.center_crop(x, target), theirs)


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


IMAGES, DRAWS = range(3), 20
X = np.zeros((50, 80, 3), np.uint8)


def sizes(op: Any, hw: tuple[int, int], count: int = DRAWS) -> tuple[list[tuple[int, int]], BatchRng]:
    """The sizes that an op draws for `count` elements, and a generator that draws the same numbers once more."""
    keys = np.arange(count, dtype=np.uint64)
    (size,) = op.draw(BatchRng(3, 0, keys, 5), np.tile(np.array(hw, np.int32), (count, 1)))
    assert size.dtype == np.int32
    return list(map(tuple, size.tolist())), BatchRng(3, 0, keys, 5)


def test_the_shorter_side_gets_a_length_and_the_longer_one_no_more_than_the_most() -> None:
    assert ops.random_shortest_size(X, 25).shape == (25, 40, 3)
    assert ops.random_shortest_size(X, 25, 30).shape == (18, 30, 3)  # 50 * 30 / 80 is 18.75
    assert ops.random_shortest_size(X.transpose(1, 0, 2), (25,), 30).shape == (30, 18, 3)
    assert ops.random_shortest_size(np.zeros((2, 90, 1), np.uint8), 9, 30).shape == (1, 30, 1)  # not 0


def test_a_product_that_misses_an_integer_is_truncated_as_torchvisions_is() -> None:
    # 7 / 55 * 55 is 6.999999999999999
    assert ops.random_shortest_size(np.zeros((55, 110, 1), np.uint8), 7).shape == (6, 13, 1)


def test_every_length_is_drawn_equally_often() -> None:
    found, _ = sizes(RandomShortestSize((10, 20, 30, 40)), (50, 80), 8000)

    counts = [sum(size[0] == length for size in found) for length in (10, 20, 30, 40)]
    assert sum(counts) == 8000
    assert all(abs(count - 2000) < 4 * (8000 * 0.25 * 0.75) ** 0.5 for count in counts)


def test_scales_are_those_of_an_image_that_fits() -> None:
    assert ops.scale_jitter(X, (40, 40), (1, 1)).shape == (25, 40, 3)
    assert ops.scale_jitter(X, (40, 10), (1, 1)).shape == (10, 16, 3)  # 40 wide, 10 high
    assert ops.scale_jitter(X, 40, (2, 2)).shape == (50, 80, 3)
    assert ops.scale_jitter(np.zeros((2, 90, 1), np.uint8), 9, (0.1, 0.1)).shape == (1, 1, 1)  # 0.04 x 0.9
    found, _ = sizes(ScaleJitter(800, 500, (0.5, 1.5)), (50, 80), 4000)
    widths = np.array([width for _, width in found])
    assert widths.min() >= 399 and widths.max() <= 1200
    assert abs(widths.mean() - 800) < 4 * 1000 / 12**0.5 / 4000**0.5 + 1


def test_lengths_are_drawn_as_torchvision_computes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    of = torchvision()
    torch = pytest.importorskip("torch")
    for number in IMAGES:
        x = photograph(number)
        lengths = tuple(range(20 + number, 400, 37))
        for most in (None, 300):
            op = RandomShortestSize(lengths, most)
            found, rng = sizes(op, x.shape[:2])
            for draw, index in enumerate(rng.integers(0, len(lengths)).tolist()):
                monkeypatch.setattr(torch, "randint", lambda *_, index=index: torch.tensor(index))
                theirs = of.v2.RandomShortestSize(list(lengths), most)
                assert found[draw] == theirs.make_params([chw(x)])["size"]


def test_scales_are_drawn_as_torchvision_computes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    of = torchvision()
    torch = pytest.importorskip("torch")
    for number in IMAGES:
        x = photograph(number)
        op = ScaleJitter(321, 200 + 9 * number, (0.1, 2.0))
        found, rng = sizes(op, x.shape[:2])
        for draw, u in enumerate(rng.uniform().tolist()):
            monkeypatch.setattr(torch, "rand", lambda *_, u=u: torch.tensor([u], dtype=torch.float32))
            theirs = of.v2.ScaleJitter((321, 200 + 9 * number), (0.1, 2.0))
            assert found[draw] == theirs.make_params([chw(x)])["size"]


def test_products_of_large_images_are_rounded_to_float32_as_torch_does() -> None:
    torch = pytest.importorskip("torch")
    found, rng = sizes(ScaleJitter(20_000, 15_000, (0.1, 2.0)), (7001, 9973), 50_000)

    scale = 0.1 + torch.from_numpy(rng.uniform().astype(np.float32)) * (2.0 - 0.1)
    factor = min(15_000 / 7001, 20_000 / 9973) * scale
    assert found == list(zip((7001 * factor).int().tolist(), (9973 * factor).int().tolist(), strict=True))


@pytest.mark.parametrize("op", [RandomShortestSize((60, 100, 300), 310), ScaleJitter(200, 200, (0.3, 1.5))], ids=str)
def test_pixels_are_torchvisions_but_for_sums_that_it_rounds_the_other_way(op: Any) -> None:
    of = torchvision()
    for number in IMAGES:
        x = photograph(number)
        for size in dict.fromkeys(sizes(op, x.shape[:2], 4)[0]):
            theirs = hwc(of.v2.functional.resize(chw(x), list(size), antialias=True)).astype(int)
            difference = np.abs(op.reference(x, np.array(size)).astype(int) - theirs)

            assert difference.max() <= 1
            assert difference.mean() < 0.02


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "random_shortest_size": lambda x, y: ops.random_shortest_size(
        (x, y), (20, 30, 40), 44, ("bilinear", "nearest"), return_params=True
    ),
    "scale_jitter": lambda x, y: ops.scale_jitter(
        (x, y), (40, 50), (0.4, 1.5), ("bilinear", "nearest"), return_params=True
    ),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["numpy"] + ["dali"] * has_dali())
@pytest.mark.parametrize("name", CALLS)
def test_an_image_and_its_mask_get_one_size_which_is_given(name: str, backend: Any) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 50, 60, 3), dtype=np.uint8)
    ds = gp.Dataset.from_tensor_slices((images, images[..., :1])).map(CALLS[name])

    found = list(ds.with_options(gp.Options(device="cpu", backend=backend)).iterator(epoch=0))

    assert ds.element_spec[1] == gp.TensorSpec((2,), "int32")
    given = [tuple(size) for _, size in found]
    for (image, mask), size in found:
        assert image.shape == (*size, 3) and mask.shape == (*size, 1)
        assert size.dtype == np.int32
    assert len(set(given)) > 1
    numpy = ds.with_options(gp.Options(device="cpu", backend="numpy"))
    assert given == [tuple(size) for _, size in numpy.iterator(epoch=0)]


def test_lengths_and_scales_may_be_traced() -> None:
    lengths = np.array([10, 20, 30])
    ds = gp.Dataset.from_tensor_slices((np.stack([X] * 3), lengths))
    numpy = gp.Options(device="cpu", backend="numpy")

    shorter = [x.shape for x in ds.map(lambda x, n: ops.random_shortest_size(x, (n, n), n + 2)).with_options(numpy)]
    jittered = [x.shape for x in ds.map(lambda x, n: ops.scale_jitter(x, (n, n), (1, n / n))).with_options(numpy)]

    assert shorter == [(7, 12, 3), (13, 22, 3), (20, 32, 3)]
    assert jittered == [(6, 10, 3), (12, 20, 3), (18, 30, 3)]
    bad = ds.map(lambda x, n: ops.random_shortest_size(x, n - 10)).with_options(numpy)
    with pytest.raises(ShapeError, match=r"random_shortest_size needs an integer for min_size from 1 to .*, got 0"):
        list(bad)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: ops.random_shortest_size(X, ()), SpecError, "a length for min_size, or several to draw from, got no"),
        (lambda: ops.random_shortest_size(X, 0), SpecError, "random_shortest_size needs min_size from 1 to"),
        (lambda: ops.random_shortest_size(X, (9, 2.5)), PlanTypeError, "needs an integer for min_size, got 2.5"),  # type: ignore[arg-type]
        (lambda: ops.random_shortest_size(X, "9"), PlanTypeError, "needs min_size as an integer or a list of"),  # type: ignore[arg-type]
        (lambda: ops.random_shortest_size(X, range(0)), SpecError, "a length for min_size, or several to draw from"),
        (lambda: ops.scale_jitter(X, range(9)), PlanTypeError, r"needs target_size as two numbers, got range\(0, 9\)"),
        (lambda: ops.random_shortest_size(X.astype(np.int32), 9), SpecError, "random_shortest_size needs an image of"),
        (lambda: ops.scale_jitter(X.astype(np.int32), 9), SpecError, "scale_jitter needs an image of uint8"),
        (lambda: ops.resize_shorter(X.astype(np.int32), 9), SpecError, "resize_shorter needs an image of uint8"),
        (lambda: ops.resize_with_pad(X.astype(np.int32), 9, 9), SpecError, "resize_with_pad needs an image of uint8"),
        (lambda: ops.random_resized_crop(X.astype(np.int32), (9, 9)), SpecError, "random_resized_crop needs an image"),
        (lambda: ops.random_shortest_size(X, 9, -1), SpecError, "random_shortest_size needs max_size from 1 to"),
        (lambda: ops.random_shortest_size(X, 9, 9, "box"), SpecError, "needs interpolation from .*, got 'box'"),
        (lambda: ops.random_shortest_size(X[0], 9), SpecError, "random_shortest_size needs an image"),
        (lambda: ops.scale_jitter(X, (9, 0)), SpecError, "scale_jitter needs height from 1 to"),
        (lambda: ops.scale_jitter(X, (9, 9, 9)), PlanTypeError, "scale_jitter needs target_size as two numbers"),
        (lambda: ops.scale_jitter(X, 9, (2, 1)), SpecError, "scale_jitter needs scale_range from small to large"),
        (lambda: ops.scale_jitter(X, 9, (0, 1)), SpecError, "scale_jitter needs scale_range from 1e-06"),
        (lambda: ops.scale_jitter((X, X), 9, interpolation=("nearest",)), SpecError, "one interpolation, or one per"),
        (lambda: ops.scale_jitter(X, 9, return_params=1), PlanTypeError, "needs return_params as True or False"),  # type: ignore[call-overload]
    ],
)  # fmt: skip
def test_mistakes_are_plan_errors(call: Callable[[], Any], error: type[PlanError], match: str) -> None:
    with pytest.raises(error, match=match):
        call()


def test_lengths_may_be_a_range_or_an_array() -> None:
    for lengths in (range(10, 31, 10), np.array([10, 20, 30]), [10, 20, 30]):
        found = {ops.random_shortest_size(X, lengths, seed=seed).shape[0] for seed in range(30)}  # type: ignore[arg-type]
        assert found == {10, 20, 30}
