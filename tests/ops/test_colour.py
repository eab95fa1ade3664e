"""The ops on colours: by hand, beside tf.image and torchvision, and on DALI."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.op import Array
from gpupipe.graph.trace import trace
from gpupipe.graph.values import Apply
from gpupipe.ops._shared.samples import encoded, noise, picture
from gpupipe.ops.catalogue import CATALOGUE
from gpupipe.ops.color_jitter import ColorJitter
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec, flatten
from gpupipe.transform import machine
from tests.conformance.harness import Batch
from tests.ops.originals import chw, hwc, torchvision
from tests.ops.refusals import refused


def pixels(*rows: Any, dtype: Any = np.uint8) -> Array:
    """An image of one row: numbers are gray pixels, triples colours."""
    image: Array = np.array([[row if isinstance(row, (list, tuple)) else [row] for row in rows]], dtype)
    return image


# 25.5 levels are 0.1; toward zero: 0.1 * 255.5 = 25.55, (100/255 + 0.1) * 255.5 = 125.7
@pytest.mark.parametrize(
    ("delta", "expected"), [(0.0, [0, 1, 100, 250, 255]), (0.1, [25, 26, 125, 255, 255]), (-0.1, [0, 0, 74, 224, 229])]
)
def test_brightness_is_a_sum_in_units_of_the_range_toward_zero_and_saturated(delta: float, expected: list[int]) -> None:
    assert ops.adjust_brightness(pixels(0, 1, 100, 250, 255), delta=delta).ravel().tolist() == expected


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


def test_saturation_moves_channels_toward_the_largest_and_stops_at_pure_colour() -> None:
    x = pixels((200, 100, 0), (0, 50, 25), (0, 0, 0), (90, 90, 90))

    half = [[200, 150, 100], [25, 50, 37], [0, 0, 0], [90, 90, 90]]
    assert ops.adjust_saturation(x, 0)[0].tolist() == [[200] * 3, [50] * 3, [0] * 3, [90] * 3]
    assert ops.adjust_saturation(x, 0.5)[0].tolist() == half
    for factor in (1, 9):  # their saturation is 1 already
        assert ops.adjust_saturation(x, factor)[0].tolist() == x[0].tolist()


def test_hue_turns_red_to_green_to_blue() -> None:
    x = pixels((255, 0, 0), (0, 255, 0), (0, 0, 255), (100, 20, 60), (8, 8, 8))

    for delta, expected in (
        (1 / 3, [(0, 255, 0), (0, 0, 255), (255, 0, 0), (60, 100, 20), (8, 8, 8)]),
        (-1 / 3, [(0, 0, 255), (255, 0, 0), (0, 255, 0), (20, 60, 100), (8, 8, 8)]),
        (1 / 2, [(0, 255, 255), (255, 0, 255), (255, 255, 0), (20, 100, 60), (8, 8, 8)]),
        (1.0, x[0].tolist()),
    ):
        np.testing.assert_array_equal(ops.adjust_hue(x, delta)[0], expected)
    twelfth = [(255, 127, 0), (0, 255, 127), (127, 0, 255), (100, 20, 20), (8, 8, 8)]  # 127.5 lies between two levels
    np.testing.assert_allclose(ops.adjust_hue(x, 1 / 12)[0], twelfth, rtol=0, atol=1)


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


BACKENDS = ["numpy"] + ["dali"] * machine.has_dali()


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


IMAGE = noise(4, 5)


test_what_tf_image_refuses_is_refused_before_running = refused(
    (SpecError, "delta from -1 to 1, got 1.01", lambda: ops.adjust_hue(IMAGE, 1.01)),
    (SpecError, "gamma from 0 to inf, got -1", lambda: ops.adjust_gamma(IMAGE, -1)),
    (SpecError, "delta from -1 to 1, got nan", lambda: ops.adjust_brightness(IMAGE, delta=float("nan"))),
    (SpecError, "jpeg_quality from 0 to 100, got 101", lambda: ops.adjust_jpeg_quality(IMAGE, 101)),
    (SpecError, "max_delta from 0 to 1, got -0.1", lambda: ops.random_brightness(IMAGE, -0.1)),
    (SpecError, r"max_delta from 0 to 0\.5, got 0\.6", lambda: ops.random_hue(IMAGE, 0.6)),
    (SpecError, r"max_delta from 0 to 0\.5, got -0\.1", lambda: ops.random_hue(IMAGE, -0.1)),
    (SpecError, r"lower below upper, got 1\.0 and 1\.0", lambda: ops.random_contrast(IMAGE, 1.0, 1.0)),
    (SpecError, r"lower from 0 to 50, got -0\.1", lambda: ops.random_contrast(IMAGE, -0.1, 1.0)),
    (SpecError, "lower below upper, got 2 and 1", lambda: ops.random_saturation(IMAGE, 2, 1)),
    (SpecError, "lower from 0 to 50, got -1", lambda: ops.random_saturation(IMAGE, -1, 1)),
    (SpecError, "min_jpeg_quality below .*, got 50 and 50", lambda: ops.random_jpeg_quality(IMAGE, 50, 50)),
    (SpecError, "min_jpeg_quality from 0 to 100, got -1", lambda: ops.random_jpeg_quality(IMAGE, -1, 50)),
    (SpecError, "max_jpeg_quality from 0 to 101, got 102", lambda: ops.random_jpeg_quality(IMAGE, 50, 102)),
    (SpecError, "an image of 3 channels, got uint8", lambda: ops.adjust_saturation(IMAGE[:, :, :1], 1.0)),
    (SpecError, "an image of 3 channels, got uint8", lambda: ops.adjust_hue(IMAGE[:, :, :2], 0.0)),
    (SpecError, "an image of 1 or 3 channels, got uint8", lambda: ops.adjust_jpeg_quality(IMAGE[:, :, :2], 50)),
    (
        SpecError,
        r"adjust_brightness needs an image \{HWC\}, got",
        lambda: ops.adjust_brightness(IMAGE[:, :, 0], delta=0.1),
    ),
    (SpecError, "uint8, uint16, float16, float32, got int32", lambda: ops.adjust_contrast(IMAGE.astype(np.int32), 1.0)),
    (SpecError, "rgb_to_hsv needs floats, got uint8", lambda: ops.rgb_to_hsv(IMAGE)),
    (SpecError, "hsv_to_rgb needs floats, got uint8", lambda: ops.hsv_to_rgb(IMAGE)),
    (SpecError, "got float64", lambda: ops.per_image_standardization(IMAGE.astype(np.float64))),
)


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


SPREADS: list[tuple[dict[str, Any], tuple[Any, ...]]] = [
    ({"brightness": 0.4, "hue": 0.1}, ((0.6, 1.4), None, None, (-0.1, 0.1))),
    ({"contrast": 3}, (None, (0.0, 4.0), None, None)),
    ({"saturation": (0.5, 0.75)}, (None, None, (0.5, 0.75), None)),
    ({}, (None, None, None, None)),
]


@pytest.mark.parametrize(("arguments", "bounds"), SPREADS, ids=str)
def test_a_number_is_a_spread_about_its_centre(arguments: Any, bounds: Any) -> None:
    made = trace(lambda x: ops.color_jitter(x, **arguments), flatten(0)[1], [TensorSpec((9, 8, 3), "uint8", "HWC")])

    assert made is not None and isinstance(made.outputs[0], Apply)
    assert made.outputs[0].op.bounds == bounds  # type: ignore[attr-defined]


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_a_factor_nothing_changes(backend: Any) -> None:
    ds = gp.Dataset.from_tensor_slices(X[None]).map(ops.color_jitter)

    np.testing.assert_array_equal(list(ds.with_options(gp.Options(device="cpu", backend=backend))), X[None])


test_wrong_jitters_are_errors = refused(
    (SpecError, "brightness from 0 to 50", lambda: ops.color_jitter(X, brightness=-0.1)),
    (SpecError, r"hue from 0 to 0\.5", lambda: ops.color_jitter(X, hue=0.6)),
    (SpecError, r"hue from -0\.5 to 0\.5", lambda: ops.color_jitter(X, hue=(-0.6, 0))),
    (SpecError, "contrast from small to large", lambda: ops.color_jitter(X, contrast=(1.5, 0.5))),
    (PlanTypeError, "a number or two bounds for saturation", lambda: ops.color_jitter(X, saturation="0.5")),  # type: ignore[arg-type]
    (SpecError, "image of 3 channels", lambda: ops.color_jitter(X[..., :1], 0.5)),
    (SpecError, "color_jitter needs", lambda: ops.color_jitter(X.astype(np.int32), 0.5)),
)


FIXED: list[tuple[str, tuple[Any, ...]]] = [
    *(("adjust_brightness", (delta,)) for delta in (-1.0, -0.3, 0, 0.1, 0.5, 1)),
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
        got = ops.adjust_brightness(x, delta=args[0]) if name == "adjust_brightness" else getattr(ops, name)(x, *args)

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
