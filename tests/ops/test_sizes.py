"""Resizing and cropping: by hand, as TensorFlow, Pillow and torchvision do, and sizes that are drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import PlanTypeError, ShapeError, SpecError
from gpupipe.graph.op import Array, Op
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.samples import noise, picture
from gpupipe.ops.central_crop import CentralCrop
from gpupipe.ops.crop_to_bounding_box import CropToBoundingBox
from gpupipe.ops.pad_to_bounding_box import PadToBoundingBox
from gpupipe.ops.random_crop import RandomCrop
from gpupipe.ops.resize import Resize
from gpupipe.ops.resize_shorter import ResizeShorter
from gpupipe.ops.scale_jitter import ScaleJitter
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec
from tests.ops.originals import chw, hwc, photograph, torchvision
from tests.ops.refusals import refused

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


SMALL = TensorSpec((7, 9, 3), "uint8")
RESIZES = "resize needs an image of uint8, uint16, int16, float32"
SIZES = [(7, 9), (8, 5), (1, 1), (12, 13), (2, 30)]


def drawn(op: Op, *sizes: tuple[int, int]) -> list[list[list[int]]]:
    """The parameters of a batch of images of these sizes."""
    rng = BatchRng(1, 0, np.arange(len(sizes), dtype=np.uint64), site=2)
    return [part.tolist() for part in op.draw(rng, np.array(sizes, np.int32))]


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


def test_a_longer_side_that_is_limited_is_not_exceeded() -> None:
    limited, alone = ResizeShorter(50, 120), ResizeShorter(None, 120)

    # 50 * 333 / 100 is 166, more than 120, and 120 * 50 / 166 is 36.1; 50 * 200 / 100 is less than 120 in neither
    assert drawn(limited, (100, 333), (333, 100), (100, 240), (90, 99)) == [[[36, 120], [120, 36], [50, 120], [50, 55]]]
    assert drawn(alone, (100, 333), (333, 100), (9, 9), (1, 999)) == [[[36, 120], [120, 36], [120, 120], [1, 120]]]


@pytest.mark.parametrize(("size", "most"), [(30, 40), (24, 25), (24, 1000), (None, 33)])
def test_a_limited_side_is_torchvisions_to_the_pixel(size: int | None, most: int) -> None:
    resize = torchvision().v2.Resize(size, max_size=most)
    rng = np.random.default_rng(0)
    hw = rng.integers(20, 90, (200, 2))
    theirs = [list(resize(chw(np.zeros((h, w, 1), np.uint8))).shape[1:]) for h, w in hw.tolist()]

    assert drawn(ResizeShorter(size, most), *map(tuple, hw.tolist())) == [theirs]


def test_a_limit_may_be_traced() -> None:
    def fn(image: Any, most: Any) -> Any:
        return ops.resize_shorter(image, 20, max_size=most)

    ds = gp.Dataset.from_list([(picture(40, 90), most) for most in (25, 30, 99)]).map(fn)

    assert [image.shape for image in ds] == [(11, 25, 3), (13, 30, 3), (20, 45, 3)]


def test_random_crop_takes_tensorflows_size() -> None:
    assert ops.random_crop(noise(9, 9), (4, 5, 3)).shape == (4, 5, 3)


def test_a_padding_crop_may_miss_the_image() -> None:
    x = noise(3, 4)

    for start in ([-9, 0], [5, 0], [0, 9], [0, -9]):
        assert not Crop(pad=True).reference(x, np.array(start, np.int32), np.array([2, 2], np.int32)).any()


def test_numbers_may_differ_from_row_to_row() -> None:
    start, shape = drawn(CropToBoundingBox(np.array([1, 2]), 0, np.array([3, 4]), 5), (9, 9), (9, 9))

    assert start == [[1, 0], [2, 0]]
    assert shape == [[3, 5], [4, 5]]
    assert drawn(CentralCrop(np.array([0.5, 1.0])), (8, 8), (8, 8)) == [[[2, 2], [0, 0]], [[4, 4], [8, 8]]]


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


def test_scales_are_those_of_an_image_that_fits() -> None:
    assert ops.scale_jitter(X, (40, 40), (1, 1)).shape == (25, 40, 3)
    assert ops.scale_jitter(X, (40, 10), (1, 1)).shape == (10, 16, 3)  # 40 wide, 10 high
    assert ops.scale_jitter(X, 40, (2, 2)).shape == (50, 80, 3)
    assert ops.scale_jitter(np.zeros((2, 90, 1), np.uint8), 9, (0.1, 0.1)).shape == (1, 1, 1)  # 0.04 x 0.9


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


test_mistakes_are_plan_errors = refused(
    (SpecError, "height from 1", lambda: ops.resize(X, (0, 5))),
    (SpecError, "width from 1", lambda: ops.resize(X, (5, -1))),
    (PlanTypeError, "an integer for height", lambda: ops.resize(X, (5.5, 5))),
    (PlanTypeError, "size as two numbers", lambda: ops.resize(X, (5, 5, 3))),
    (SpecError, "method from area, bicubic", lambda: ops.resize(X, (5, 5), "cubic")),
    (SpecError, RESIZES, lambda: Resize(2, 2).infer(TensorSpec((4, 4, 1), "int64"))),
    (SpecError, RESIZES, lambda: Resize(2, 2).infer(TensorSpec((4, 4, 1), "float64"))),
    (SpecError, RESIZES, lambda: Resize(2, 2).infer(TensorSpec((4, 4, 1), "bool"))),
    (SpecError, "keeps all channels, got a size of 1", lambda: RandomCrop(4, 5, 1).infer(SMALL)),
    (PlanTypeError, "size as", lambda: ops.random_crop(X, 4)),
    (SpecError, "inside the image, got 3.5 of 7", lambda: CropToBoundingBox(3, 0, 5, 5).infer(SMALL)),
    (SpecError, "inside the image, got 0.10 of 9", lambda: CropToBoundingBox(0, 0, 5, 10).infer(SMALL)),
    (SpecError, "room for the image, got 7 at 3 in 9", lambda: PadToBoundingBox(3, 0, 9, 20).infer(SMALL)),
    (SpecError, "as large as its window, got 8 of 7", lambda: RandomCrop(8, 5).infer(SMALL)),
    (SpecError, "central_crop needs", lambda: ops.central_crop(X, 0)),
    (SpecError, "central_crop needs", lambda: ops.central_crop(X, 1.5)),
    (PlanTypeError, "central_crop", lambda: ops.central_crop(X, "half")),
    (SpecError, "crop_to_bounding_box needs", lambda: ops.crop_to_bounding_box(X, -1, 0, 2, 2)),
    (SpecError, "pad_to_bounding_box needs", lambda: ops.pad_to_bounding_box(X, 0, 0, 0, 2)),
    (SpecError, "center_crop needs", lambda: ops.center_crop(X, (0, 2))),
    (PlanTypeError, "resize_with_crop_or_pad", lambda: ops.resize_with_crop_or_pad(X, 2.5, 2)),
    (SpecError, "resize_shorter needs", lambda: ops.resize_shorter(X, 0)),
    (SpecError, "interpolation", lambda: ops.resize_shorter(X, 4, "area")),
    (SpecError, "max_size above the length of the shorter side 4, got 4", lambda: ops.resize_shorter(X, 4, max_size=4)),
    (SpecError, "needs max_size from 1 to", lambda: ops.resize_shorter(X, None, max_size=0)),
    (PlanTypeError, "needs an integer for length, got None", lambda: ops.resize_shorter(X, None)),
    (SpecError, "random_crop needs", lambda: ops.random_crop(X, (0, 4))),
    (SpecError, "a length for min_size, or several to draw from, got no", lambda: ops.random_shortest_size(X, ())),
    (SpecError, "random_shortest_size needs min_size from 1 to", lambda: ops.random_shortest_size(X, 0)),
    (PlanTypeError, "needs an integer for min_size, got 2.5", lambda: ops.random_shortest_size(X, (9, 2.5))),  # type: ignore[arg-type]
    (PlanTypeError, "needs min_size as an integer or a list of", lambda: ops.random_shortest_size(X, "9")),  # type: ignore[arg-type]
    (SpecError, "a length for min_size, or several to draw from", lambda: ops.random_shortest_size(X, range(0))),
    (PlanTypeError, r"needs target_size as two numbers, got range\(0, 9\)", lambda: ops.scale_jitter(X, range(9))),
    (SpecError, "random_shortest_size needs an image of", lambda: ops.random_shortest_size(X.astype(np.int32), 9)),
    (SpecError, "scale_jitter needs an image of uint8", lambda: ops.scale_jitter(X.astype(np.int32), 9)),
    (SpecError, "resize_shorter needs an image of uint8", lambda: ops.resize_shorter(X.astype(np.int32), 9)),
    (SpecError, "resize_with_pad needs an image of uint8", lambda: ops.resize_with_pad(X.astype(np.int32), 9, 9)),
    (SpecError, "random_resized_crop needs an image", lambda: ops.random_resized_crop(X.astype(np.int32), (9, 9))),
    (SpecError, "random_shortest_size needs max_size from 1 to", lambda: ops.random_shortest_size(X, 9, -1)),
    (SpecError, "needs interpolation from .*, got 'box'", lambda: ops.random_shortest_size(X, 9, 9, "box")),
    (SpecError, "random_shortest_size needs an image", lambda: ops.random_shortest_size(X[0], 9)),
    (SpecError, "scale_jitter needs height from 1 to", lambda: ops.scale_jitter(X, (9, 0))),
    (PlanTypeError, "scale_jitter needs target_size as two numbers", lambda: ops.scale_jitter(X, (9, 9, 9))),
    (SpecError, "scale_jitter needs scale_range from small to large", lambda: ops.scale_jitter(X, 9, (2, 1))),
    (SpecError, "scale_jitter needs scale_range from 1e-06", lambda: ops.scale_jitter(X, 9, (0, 1))),
    (SpecError, "one interpolation, or one per", lambda: ops.scale_jitter((X, X), 9, interpolation=("nearest",))),
    (PlanTypeError, "needs return_params as True or False", lambda: ops.scale_jitter(X, 9, return_params=1)),  # type: ignore[call-overload]
)


def test_an_image_and_its_mask_get_one_size_which_is_given() -> None:
    for op, size in ((ops.random_shortest_size, (20, 30, 40)), (ops.scale_jitter, (40, 50))):
        (x, mask), given = op((X, X[..., :1]), size, return_params=True, seed=3)

        assert x.shape == (*given, 3) and mask.shape == (*given, 1) and given.dtype == np.int32


def test_lengths_may_be_a_range_or_an_array() -> None:
    for lengths in (range(10, 31, 10), np.array([10, 20, 30]), [10, 20, 30]):
        found = {ops.random_shortest_size(X, lengths, seed=seed).shape[0] for seed in range(30)}  # type: ignore[arg-type]
        assert found == {10, 20, 30}


def test_the_shorter_side_is_rounded_down_as_by_timm() -> None:
    """224 / 0.9 is 248.9."""
    assert "resize_shorter(size=248," in str(ops.from_timm({"input_size": 224, "crop_pct": 0.9}))
