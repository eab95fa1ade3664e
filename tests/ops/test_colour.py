"""The ops on colours: by hand, beside tf.image and torchvision, and row by row through batches and executors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import DataError, PlanTypeError, SpecError
from gpupipe.graph.op import Array, Op
from gpupipe.ops._shared.samples import encoded, noise, picture
from gpupipe.ops.catalogue import CATALOGUE
from gpupipe.ops.color_jitter import ColorJitter
from gpupipe.ops.random_brightness import RandomBrightness
from gpupipe.ops.random_contrast import RandomContrast
from gpupipe.ops.random_hue import RandomHue
from gpupipe.ops.random_jpeg_quality import RandomJpegQuality
from gpupipe.ops.random_saturation import RandomSaturation
from gpupipe.random import BatchRng
from gpupipe.transform import machine
from tests.conformance.harness import EXECUTORS, Batch
from tests.ops.originals import chw, hwc, photograph, torchvision
from tests.ops.test_traced_geometry import run, values_of

KEYS = np.arange(2000, dtype=np.uint64) << np.uint64(13)
HW = np.zeros((2000, 2), np.int32)


def pixels(*rows: Any, dtype: Any = np.uint8) -> Array:
    """An image of one row: numbers are gray pixels, triples colours."""
    image: Array = np.array([[row if isinstance(row, (list, tuple)) else [row] for row in rows]], dtype)
    return image


def drawn(op: Op) -> Array:
    """What a random op draws for 2000 elements."""
    (numbers,) = op.draw(BatchRng(seed=5, epoch=0, keys=KEYS, site=1), HW)
    return numbers


# 25.5 levels are 0.1; toward zero: 0.1 * 255.5 = 25.55, (100/255 + 0.1) * 255.5 = 125.7
@pytest.mark.parametrize(
    ("delta", "expected"), [(0.0, [0, 1, 100, 250, 255]), (0.1, [25, 26, 125, 255, 255]), (-0.1, [0, 0, 74, 224, 229])]
)
def test_brightness_is_a_sum_in_units_of_the_range_toward_zero_and_saturated(delta: float, expected: list[int]) -> None:
    assert ops.adjust_brightness(pixels(0, 1, 100, 250, 255), delta).ravel().tolist() == expected


def test_contrast_is_about_the_mean_of_each_channel_and_not_of_the_image() -> None:
    x = pixels((10, 100, 7), (30, 200, 7))

    # means 20, 150, 7: distances -10 and 10, -50 and 50, 0
    assert ops.adjust_contrast(x, 1.5)[0].tolist() == [[5, 75, 7], [35, 225, 7]]
    assert ops.adjust_contrast(x, 0)[0].tolist() == [[20, 150, 7], [20, 150, 7]]
    assert ops.adjust_contrast(x, 4)[0].tolist() == [[0, 0, 7], [60, 255, 7]]


def test_contrast_takes_the_mean_of_a_whole_image_exactly() -> None:
    x = np.full((300, 400, 1), 255, np.uint8)
    x[0, 0] = 0

    # 255 * 119999 / 120000 = 254.998 stays below 255; a float32 sum of 120000 values would not tell
    assert ops.adjust_contrast(x, 0).max() == ops.adjust_contrast(x, 0).min() == 255
    assert ops.adjust_contrast(x.astype(np.float32), 0).max() == np.float32(255 * 119999 / 120000)


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        (0, [[200, 200, 200], [50, 50, 50], [0, 0, 0], [90, 90, 90]]),
        (0.5, [[200, 150, 100], [25, 50, 37], [0, 0, 0], [90, 90, 90]]),
        (1, [[200, 100, 0], [0, 50, 25], [0, 0, 0], [90, 90, 90]]),
        (9, [[200, 100, 0], [0, 50, 25], [0, 0, 0], [90, 90, 90]]),  # their saturation is 1 already
    ],
)
def test_saturation_moves_channels_toward_the_largest_and_stops_at_pure_colour(
    factor: float, expected: list[list[int]]
) -> None:
    x = pixels((200, 100, 0), (0, 50, 25), (0, 0, 0), (90, 90, 90))

    assert ops.adjust_saturation(x, factor)[0].tolist() == expected


@pytest.mark.parametrize(
    ("delta", "expected"),
    [
        (1 / 3, [(0, 255, 0), (0, 0, 255), (255, 0, 0), (60, 100, 20), (8, 8, 8)]),
        (-1 / 3, [(0, 0, 255), (255, 0, 0), (0, 255, 0), (20, 60, 100), (8, 8, 8)]),
        (1 / 2, [(0, 255, 255), (255, 0, 255), (255, 255, 0), (20, 100, 60), (8, 8, 8)]),
        (1 / 12, [(255, 127, 0), (0, 255, 127), (127, 0, 255), (100, 20, 20), (8, 8, 8)]),
        (1.0, [(255, 0, 0), (0, 255, 0), (0, 0, 255), (100, 20, 60), (8, 8, 8)]),
    ],
)
def test_hue_turns_red_to_green_to_blue(delta: float, expected: list[tuple[int, int, int]]) -> None:
    x = pixels((255, 0, 0), (0, 255, 0), (0, 0, 255), (100, 20, 60), (8, 8, 8))

    got = ops.adjust_hue(x, delta)[0].astype(int)

    assert np.abs(got - np.array(expected)).max() <= (1 if delta == 1 / 12 else 0)  # 127.5 lies between two levels


def test_gamma_is_a_power_times_the_gain() -> None:
    x = pixels(0, 64, 128, 255)

    assert ops.adjust_gamma(x, 2).ravel().tolist() == [0, 16, 64, 255]  # (64/255)**2 * 255.5 = 16.09
    assert ops.adjust_gamma(x, 1, 0.5).ravel().tolist() == [0, 32, 64, 127]
    assert ops.adjust_gamma(x, 0).ravel().tolist() == [255, 255, 255, 255]  # 0 ** 0 is 1
    assert np.isnan(ops.adjust_gamma(pixels(-1.0, dtype=np.float32), 0.5)).all()


def test_standardization_gives_mean_0_and_deviation_1_over_all_channels() -> None:
    x = noise(40, 50)

    got = ops.per_image_standardization(x)

    expected = (x - x.mean(dtype=np.float64)) / x.std(dtype=np.float64)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, atol=1e-6)


def test_the_deviation_is_at_least_that_of_one_value_in_the_image() -> None:
    plain = np.full((5, 5, 4), 3, np.uint8)
    nearly = plain.astype(np.float32)
    nearly[0, 0, 0] += 0.5  # mean 3.005, deviation 0.0497, below 1 / sqrt(100)

    assert not ops.per_image_standardization(plain).any()
    assert ops.per_image_standardization(nearly)[0, 0, 0] == pytest.approx(0.495 * 10, abs=1e-4)


def test_hsv_and_back() -> None:
    x = pixels((1, 0, 0), (0, 0.5, 0), (0.2, 0.2, 0.6), (0.3, 0.3, 0.3), dtype=np.float32)

    hsv = ops.rgb_to_hsv(x)

    assert hsv[0].ravel().tolist() == pytest.approx([0, 1, 1, 1 / 3, 1, 0.5, 2 / 3, 2 / 3, 0.6, 0, 0, 0.3])
    np.testing.assert_allclose(ops.hsv_to_rgb(hsv), x, atol=1e-6)


@pytest.mark.parametrize("quality", [1, 40, 95])
def test_jpeg_quality_is_what_a_jpeg_file_of_this_quality_gives(quality: int) -> None:
    for x in (picture(33, 45), picture(20, 9, 1)):
        file = encoded(x, quality=quality) if x.shape[2] == 1 else encoded(x, quality=quality, subsampling=2)

        np.testing.assert_array_equal(ops.adjust_jpeg_quality(x, quality), ops.decode_image(file))


@pytest.mark.parametrize(
    ("op", "low", "high"),
    [
        (RandomBrightness(0.3), -0.3, 0.3),
        (RandomContrast(0.5, 1.5), 0.5, 1.5),
        (RandomSaturation(0.5, 1.5), 0.5, 1.5),
        (RandomHue(0.3), -0.3, 0.3),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_factors_are_uniform_over_their_range(op: Op, low: float, high: float) -> None:
    numbers = drawn(op)

    assert numbers.dtype == np.float32
    assert low <= numbers.min() < low + 0.01
    assert high - 0.01 < numbers.max() <= high
    counts, _ = np.histogram(numbers, 10, (low, high))
    assert 140 < counts.min() <= counts.max() < 260  # 200 each; the deviation is 13


def test_qualities_are_integers_below_the_upper_bound() -> None:
    numbers = drawn(RandomJpegQuality(60, 64))

    assert np.unique(numbers).tolist() == [60, 61, 62, 63]
    assert numbers.dtype == np.int32


BACKENDS = ["numpy"] + ["dali"] * machine.has_dali()


def augment(image: Any) -> Any:
    """Every random op on colours, one after the other, so that none hides in another's rounding."""
    return (
        ops.random_brightness(image, 0.2),
        ops.random_contrast(image, 0.5, 1.5),
        ops.random_saturation(image, 0.5, 1.5),
        ops.random_hue(image, 0.4),
        ops.random_jpeg_quality(image, 20, 90),
        ops.adjust_gamma(image, 1.7),
        ops.per_image_standardization(image),
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_behind_batch_each_row_is_what_it_is_before(backend: str) -> None:
    images = np.stack([picture(20, 24) + np.uint8(17 * i) for i in range(6)])
    ds = gp.Dataset.from_tensor_slices(images)
    options = gp.Options(device="cpu", backend=backend)  # type: ignore[arg-type]

    before = list(ds.map(augment).batch(3).with_options(options))
    behind = list(ds.batch(3).map(augment).with_options(options))

    assert len(before) == len(behind) == 2
    for one, other in zip(before, behind, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a.shape == b.shape
            np.testing.assert_array_equal(a, b)
    first = before[0][0].astype(int) - images[:3]
    assert len({int(np.median(row)) for row in first}) == 3  # rows have numbers of their own


@pytest.mark.skipif(not machine.has_dali(), reason="DALI is not installed")
def test_on_the_cpu_dali_gives_the_same_bytes() -> None:
    """Tolerances of the cases leave room for GPUs; here there is none but for gamma's power."""
    for cls in CATALOGUE:
        if not cls.__module__.startswith("gpupipe.ops.") or "gamma" in cls.__module__:
            continue
        if not any(word in cls.__module__ for word in ("brightness", "contrast", "saturation", "hue", "quality")):
            continue
        for case in cls.cases():
            if case.inputs[0].dtype.kind != "u":
                continue
            batch = Batch.of(case)
            for got, expected in zip(batch.run("dali-cpu"), batch.references(), strict=True):
                np.testing.assert_array_equal(got[0], expected[0], err_msg=str(case))


TRACED: dict[str, tuple[Callable[..., Any], Array]] = {
    "adjust_brightness": (ops.adjust_brightness, np.array([-0.2, 0.0, 0.3])),
    "adjust_contrast": (ops.adjust_contrast, np.array([0.5, 1.0, 2.0])),
    "adjust_saturation": (ops.adjust_saturation, np.array([0.5, 1.0, 2.0])),
    "adjust_hue": (ops.adjust_hue, np.array([-1.0, 0.1, 0.5])),
    "adjust_gamma": (ops.adjust_gamma, np.array([0.5, 1.0, 2.0])),
    "adjust_jpeg_quality": (ops.adjust_jpeg_quality, np.array([0, 50, 100])),
}


@pytest.mark.conformance
@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("name", TRACED)
def test_a_feature_can_be_the_parameter(name: str, kind: str) -> None:
    op, numbers = TRACED[name]
    x = np.stack([picture(17, 20)] * 3)

    rows = run(kind, op, x, numbers)

    room = 48 if kind == "dali-gpu" and name == "adjust_jpeg_quality" else 1
    for row, number in zip(rows, numbers.tolist(), strict=True):
        assert np.abs(row.astype(int) - op(x[0], number)).max() <= room


@pytest.mark.parametrize(
    ("fn", "numbers", "words"),
    [
        (ops.adjust_gamma, [0.5, -0.5, -1.0], r"adjust_gamma needs gamma from 0 to inf, got -0.5"),
        (ops.adjust_brightness, [0.5, np.nan, np.inf], r"adjust_brightness needs delta from -inf to inf, got nan"),
        (ops.adjust_jpeg_quality, [50, 50.5, 0.1], r"needs an integer for jpeg_quality from 0 to 100, got 50.5"),
        (ops.random_hue, [0.5, 0.6, -0.1], r"random_hue needs max_delta from 0 to 0.5, got 0.6"),
        (ops.random_brightness, [0.5, -0.1, -0.2], r"random_brightness needs max_delta from 0 to inf, got -0.1"),
        (lambda x, n: ops.random_saturation(x, 0.5, n), [0.6, 0.5, 0.1], r"needs lower below upper, got 0.5 and 0.5"),
        (lambda x, n: ops.random_jpeg_quality(x, n, 60), [50, 60, 70], "min_jpeg_quality below .*, got 60 and 60"),
    ],
)
def test_a_feature_out_of_range_blames_its_rows(fn: Callable[..., Any], numbers: list[Any], words: str) -> None:
    (image,), values = values_of(fn, np.stack([picture(4, 4)] * 3), np.array(numbers))

    with pytest.raises(DataError, match=words) as caught:
        values.rows(image.inputs[1])

    assert caught.value.rows == (1, 2)


IMAGE = noise(4, 5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ops.adjust_hue(IMAGE, 1.01), "delta from -1 to 1, got 1.01"),
        (lambda: ops.adjust_gamma(IMAGE, -1), "gamma from 0 to inf, got -1"),
        (lambda: ops.adjust_brightness(IMAGE, float("nan")), "delta from -inf to inf, got nan"),
        (lambda: ops.adjust_jpeg_quality(IMAGE, 101), "jpeg_quality from 0 to 100, got 101"),
        (lambda: ops.random_brightness(IMAGE, -0.1), "max_delta from 0 to inf, got -0.1"),
        (lambda: ops.random_hue(IMAGE, 0.6), r"max_delta from 0 to 0\.5, got 0\.6"),
        (lambda: ops.random_hue(IMAGE, -0.1), r"max_delta from 0 to 0\.5, got -0\.1"),
        (lambda: ops.random_contrast(IMAGE, 1.0, 1.0), r"lower below upper, got 1\.0 and 1\.0"),
        (lambda: ops.random_contrast(IMAGE, -0.1, 1.0), r"lower from 0 to inf, got -0\.1"),
        (lambda: ops.random_saturation(IMAGE, 2, 1), "lower below upper, got 2 and 1"),
        (lambda: ops.random_saturation(IMAGE, -1, 1), "lower from 0 to inf, got -1"),
        (lambda: ops.random_jpeg_quality(IMAGE, 50, 50), "min_jpeg_quality below max_jpeg_quality, got 50 and 50"),
        (lambda: ops.random_jpeg_quality(IMAGE, -1, 50), "min_jpeg_quality from 0 to 100, got -1"),
        (lambda: ops.random_jpeg_quality(IMAGE, 50, 101), "max_jpeg_quality from 0 to 100, got 101"),
        (lambda: ops.adjust_saturation(IMAGE[:, :, :1], 1.0), "an image of 3 channels, got uint8"),
        (lambda: ops.adjust_hue(IMAGE[:, :, :2], 0.0), "an image of 3 channels, got uint8"),
        (lambda: ops.adjust_jpeg_quality(IMAGE[:, :, :2], 50), "an image of 1 or 3 channels, got uint8"),
        (lambda: ops.adjust_brightness(IMAGE[:, :, 0], 0.1), r"adjust_brightness needs an image \{HWC\}, got"),
        (lambda: ops.adjust_contrast(IMAGE.astype(np.int32), 1.0), "uint8, uint16, float16, float32, got int32"),
        (lambda: ops.rgb_to_hsv(IMAGE), "rgb_to_hsv needs floats, got uint8"),
        (lambda: ops.hsv_to_rgb(IMAGE), "hsv_to_rgb needs floats, got uint8"),
        (lambda: ops.per_image_standardization(IMAGE.astype(np.float64)), "got float64"),
    ],
)
def test_what_tf_image_refuses_is_refused_before_running(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        call()


@pytest.mark.parametrize("quality", [50.0, "50", None, True])
def test_a_quality_is_an_integer(quality: Any) -> None:
    with pytest.raises(PlanTypeError, match="adjust_jpeg_quality needs an integer for jpeg_quality"):
        ops.adjust_jpeg_quality(IMAGE, quality)


X = np.random.default_rng(0).integers(0, 256, (9, 8, 3), dtype=np.uint8)
NAMES = ("brightness", "contrast", "saturation", "hue")
ALL = {"brightness": (0.4, 1.6), "contrast": (0.4, 1.6), "saturation": (0.0, 2.0), "hue": (-0.5, 0.5)}


def floats(values: Any) -> Any:
    """An array of float32."""
    return np.array(values, np.float32)


def of_torchvision(x: Any, order: Any, factors: Any) -> Any:
    """Its steps in an order, with factors."""
    y = chw(x)
    for step in order:
        if step >= 0:
            y = getattr(torchvision().v2.functional, f"adjust_{NAMES[step]}")(y, float(factors[step]))
    return hwc(y).astype(np.float64)


def test_each_step_by_hand() -> None:
    x = np.array([[[10, 100, 200], [250, 0, 0]]], np.uint8)

    def fixed(**factor: float) -> Any:
        bounds = {name: (value, value) for name, value in factor.items()}
        return ops.color_jitter(x, **bounds)[0].tolist()  # type: ignore[arg-type]

    assert fixed(brightness=1.5) == [[15, 150, 255], [255, 0, 0]]
    # grays: trunc(2.989 + 58.7 + 22.8) = 84 and trunc(74.725) = 74, mean 79; 0.5 x + 39.5
    assert fixed(contrast=0.5) == [[44, 89, 139], [164, 39, 39]]
    assert fixed(saturation=0.5) == [[47, 92, 142], [162, 37, 37]]
    # a third of a turn moves red to green, green to blue and blue to red
    assert fixed(hue=1 / 3) == [[200, 10, 100], [0, 250, 0]]


@pytest.mark.parametrize("steps", [steps for n in range(1, 5) for steps in itertools.combinations(NAMES, n)], ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_the_reference_is_torchvisions(dtype: str, steps: tuple[str, ...]) -> None:
    x = X if dtype == "uint8" else X.astype(np.float32) / 255
    op = ColorJitter(**{name: ALL[name] for name in steps}, dtype=dtype)
    orders, factors = op.draw(BatchRng(3, 0, np.arange(8, dtype=np.uint64), 5), np.zeros((8, 2), np.int32))

    for order, factor in zip(orders, factors, strict=True):
        got = op.reference(x, order, factor).astype(np.float64)
        difference = np.abs(got - of_torchvision(x, order, factor))
        if dtype == "float32":
            assert difference.max() < 1e-4  # float32 against float64; a hue divides by the span of its pixel
        else:  # a value next to a whole number is cut off to either side, and the steps after it pass that on
            assert (difference > 0).mean() < 0.02
            assert difference.max() <= 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_floats_beyond_0_and_1_are_not_clamped_by_a_step_that_is_absent(backend: Any) -> None:
    x = floats([[[[1.5, -0.5, 0.25]]]] * 8)  # enough for both orders

    def chain(image: Any) -> Any:
        return ops.color_jitter(image, brightness=(0.5, 0.5), hue=(1 / 3, 1 / 3))

    images = list(gp.Dataset.from_tensor_slices(x).map(chain).with_options(gp.Options(device="cpu", backend=backend)))

    op = ColorJitter((0.5, 0.5), None, None, (1 / 3, 1 / 3), dtype="float32")
    factors = floats([0.5, 1, 1, 1 / 3])
    # brightness first: 0.75, 0, 0.125 and then the turn; hue first: 0.25, 1.5, -0.5 and then half of it, clamped
    for order in ((0, 3), (3, 0)):
        np.testing.assert_allclose(op.reference(x[0], np.array(order), factors)[0, 0], [0.125, 0.75, 0.0], atol=1e-6)
    for image in images:
        np.testing.assert_allclose(image[0, 0], [0.125, 0.75, 0.0], atol=1e-6)


def test_factors_are_uniform_and_orders_equally_likely() -> None:
    count = 24 * 200
    op = ColorJitter((0.6, 1.4), (0.0, 2.0), (0.5, 1.0), (-0.1, 0.3))

    orders, factors = op.draw(BatchRng(1, 0, np.arange(count, dtype=np.uint64), 9), np.zeros((count, 2), np.int32))

    for n, (low, high) in enumerate([(0.6, 1.4), (0.0, 2.0), (0.5, 1.0), (-0.1, 0.3)]):
        assert factors[:, n].min() >= np.float32(low)
        assert factors[:, n].max() <= np.float32(high)
        # 5 standard errors of the mean of a uniform distribution
        assert abs(factors[:, n].mean() - (low + high) / 2) < 5 * (high - low) / math.sqrt(12 * count)
    seen, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(seen) == 24
    # chi-square with 23 degrees of freedom exceeds 58.6 once in 16,000 samples
    assert ((counts - 200) ** 2 / 200).sum() < 58.6
    assert np.abs(np.corrcoef(factors.T) - np.eye(4)).max() < 0.08  # 5 / sqrt(4800)


def test_a_number_is_a_spread_about_its_centre() -> None:
    def bounds(**arguments: Any) -> Any:
        recorded: list[ColorJitter] = []

        def chain(image: Any) -> Any:
            result = ops.color_jitter(image, **arguments)
            recorded.append(result._value.op)
            return result

        gp.Dataset.from_tensor_slices(X[None]).map(chain)
        return recorded[0].bounds

    assert bounds(brightness=0.4, hue=0.1) == ((0.6, 1.4), None, None, (-0.1, 0.1))
    assert bounds(contrast=3) == (None, (0.0, 4.0), None, None)
    assert bounds(saturation=(0.5, 0.75)) == (None, None, (0.5, 0.75), None)
    assert bounds() == (None, None, None, None)


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_a_factor_nothing_changes(backend: Any) -> None:
    (image,) = (
        gp.Dataset.from_tensor_slices(X[None])
        .map(ops.color_jitter)
        .with_options(gp.Options(device="cpu", backend=backend))
    )

    np.testing.assert_array_equal(image, X)


def test_a_seed_repeats_and_epochs_differ() -> None:
    ds = gp.Dataset.from_tensor_slices(X[None]).map(lambda i: ops.color_jitter(i, 0.5, 0.5, 0.5, 0.5))

    first, again, later = (next(iter(ds.iterator(epoch=n))) for n in (0, 0, 1))

    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, later)
    a, b = (ops.color_jitter(X, 0.5, seed=4) for _ in range(2))
    np.testing.assert_array_equal(a, b)


def test_wrong_jitters_are_errors() -> None:
    with pytest.raises(SpecError, match="brightness from 0 to inf"):
        ops.color_jitter(X, brightness=-0.1)
    with pytest.raises(SpecError, match=r"hue from 0 to 0\.5"):
        ops.color_jitter(X, hue=0.6)
    with pytest.raises(SpecError, match=r"hue from -0\.5 to 0\.5"):
        ops.color_jitter(X, hue=(-0.6, 0))
    with pytest.raises(SpecError, match="contrast from small to large"):
        ops.color_jitter(X, contrast=(1.5, 0.5))
    with pytest.raises(PlanTypeError, match="a number or two bounds for saturation"):
        ops.color_jitter(X, saturation="0.5")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="image of 3 channels"):
        ops.color_jitter(X[..., :1], 0.5)
    with pytest.raises(SpecError, match="color_jitter needs"):
        ops.color_jitter(X.astype(np.int32), 0.5)


FIXED: list[tuple[str, tuple[Any, ...]]] = [
    *(("adjust_brightness", (delta,)) for delta in (-1.0, -0.3, 0, 0.1, 0.5, 1.5)),
    *(("adjust_contrast", (factor,)) for factor in (-1.0, 0, 0.3, 1, 2.5)),
    *(("adjust_saturation", (factor,)) for factor in (-1.0, 0, 0.3, 1, 2.5)),
    *(("adjust_hue", (delta,)) for delta in (-1.0, -0.6, -0.1, 0, 0.05, 1 / 3, 0.5, 1)),
    *(("adjust_gamma", args) for args in ((), (0,), (0.45,), (2.2, 1.3))),
    ("per_image_standardization", ()),
]
COLOURS_ONLY = ("adjust_saturation", "adjust_hue")


def images(channels: int) -> Iterator[Array]:
    """Images of every type, with extremes, plain rows, and one pixel alone."""
    x = noise(48, 36, channels)
    x[0], x[1], x[2] = 0, 255, 7
    x[3, :, 0] = 255
    x[4] = np.where(x[4] > 127, 255, 0)
    yield x
    yield x[:1, :1]
    yield x[10:11, 10:11]
    yield x.astype(np.uint16) * np.uint16(257)
    yield x.astype(np.float32) / np.float32(255)
    yield np.random.default_rng(1).uniform(-1, 2, (20, 30, channels)).astype(np.float32)


def assert_close(got: Array, expected: Array, name: str) -> None:
    """uint8 equal but for rare steps of 1; uint16 within 1; floats within a few roundings."""
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    if got.dtype.kind == "f":
        # Sums, quotients and powers of another order: a few units of the last place of values up to about 4.
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=4e-6, err_msg=name)
        return
    difference = np.abs(got.astype(int) - expected.astype(int))
    assert difference.max() <= 1, name
    # A value that TensorFlow's rounding puts on the other side of an integer; in 16 bits there are 256 times as many.
    assert (difference > 0).mean() <= (0.001 if got.dtype == np.uint8 else 0.05), name


@pytest.mark.tf
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("name", "args"), FIXED, ids=lambda value: value if isinstance(value, str) else str(value))
def test_it_is_tensorflows(tf: Any, name: str, args: tuple[Any, ...], channels: int) -> None:
    if name in COLOURS_ONLY and channels == 1:
        with pytest.raises(tf.errors.InvalidArgumentError, match="3 channels"):
            getattr(tf.image, name)(next(images(1)), *args)
        return
    for x in images(channels):
        got = getattr(ops, name)(x, *args)

        assert_close(got, getattr(tf.image, name)(tf.constant(x), *args).numpy(), f"{name}{args} of {x.dtype}{x.shape}")


@pytest.mark.tf
@pytest.mark.parametrize("name", ["rgb_to_hsv", "hsv_to_rgb"])
def test_hsv_is_tensorflows(tf: Any, name: str) -> None:
    for x in images(3):
        if x.dtype.kind == "f":
            got = getattr(ops, name)(x)

            np.testing.assert_allclose(got, getattr(tf.image, name)(x).numpy(), rtol=0, atol=3e-7)


@pytest.mark.tf
@pytest.mark.parametrize("quality", [0, 1, 10, 50, 75, 95, 100])
def test_jpeg_quality_is_tensorflows_with_the_accurate_transform(tf: Any, quality: int) -> None:
    for x in (picture(64, 80), picture(31, 18), noise(37, 45), noise(1, 1), picture(20, 30, 1), noise(9, 7, 1)):
        for image in (x, x.astype(np.uint16) * np.uint16(257), x.astype(np.float32) / np.float32(200)):
            expected = tf.image.adjust_jpeg_quality(image, quality, dct_method="INTEGER_ACCURATE").numpy()

            np.testing.assert_array_equal(ops.adjust_jpeg_quality(image, quality), expected)


@pytest.mark.tf
@pytest.mark.parametrize("name", ["adjust_gamma", "adjust_jpeg_quality"])
def test_photographs_with_several_draws_each_are_tensorflows(tf: Any, name: str) -> None:
    for number in range(3):
        x, rng = photograph(number)[:64, : 60 + number], np.random.default_rng(number)
        for draw in range(6):
            if name == "adjust_gamma":
                args = tuple(rng.uniform((0.2, 0.5), (3, 1.5)).tolist())

                assert_close(ops.adjust_gamma(x, *args), tf.image.adjust_gamma(x, *args).numpy(), f"{name}{args}")
            else:
                quality = int(rng.integers(0, 101))
                expected = tf.image.adjust_jpeg_quality(x, quality, dct_method="INTEGER_ACCURATE").numpy()

                np.testing.assert_array_equal(ops.adjust_jpeg_quality(x, quality), expected, f"{quality}, {draw}")
