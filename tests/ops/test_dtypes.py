"""cast and convert_image_dtype: by hand, by exact arithmetic, as TensorFlow saturates; and 16 bits through all ops."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.trace import trace
from gpupipe.ops.cast import Cast
from gpupipe.spec import TensorSpec, flatten
from tests.chains.data import on
from tests.conformance.harness import EXECUTORS
from tests.ops.refusals import refused

INTEGERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]


def test_integers_saturate_in_both_directions() -> None:
    assert ops.cast(np.array([-1, 0, 255, 256, 2**31 - 1], np.int32), "uint8").tolist() == [0, 0, 255, 255, 255]
    assert ops.cast(np.array([2**64 - 1, 5], np.uint64), "int64").tolist() == [2**63 - 1, 5]
    assert ops.cast(np.array([-1, 2**62], np.int64), "uint64").tolist() == [0, 2**62]
    assert ops.cast(np.array([128, 127], np.uint8), "int8").tolist() == [127, 127]


def test_float16_cannot_hold_the_bounds_and_saturates_all_the_same() -> None:
    assert ops.cast(np.array([-2, 300.5, np.inf], np.float16), "uint16").tolist() == [0, 300, 65535]
    assert ops.cast(np.array([65504, 1e6], np.float32), "float16").tolist() == [65504, np.inf]


def test_booleans_are_0_and_1() -> None:
    assert ops.cast(np.array([True, False]), "uint8").tolist() == [1, 0]
    assert ops.cast(True, "float32") == 1.0


def test_a_scalar_stays_a_scalar() -> None:
    got: Any = ops.cast(np.float64(3.7), np.int64)

    assert type(got) is np.int64
    assert got == 3


@given(st.floats(allow_nan=False, width=32), st.sampled_from(INTEGERS))
def test_any_float_becomes_the_nearest_integer_toward_zero_that_fits(value: float, dtype: str) -> None:
    bounds = np.iinfo(dtype)
    if np.isinf(value):
        expected = bounds.max if value > 0 else bounds.min
    else:
        expected = min(max(int(Fraction(value)), bounds.min), bounds.max)  # int() truncates

    assert int(ops.cast(np.float32(value), dtype)) == expected


@pytest.mark.tf
@pytest.mark.parametrize("source", ["float32", "int32", "uint8"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "float32", "int64"])
def test_it_is_tensorflows_saturate_cast(tf: Any, source: str, dtype: str) -> None:
    values = [-(2.0**31), -70000.5, -300, -128.6, -1.5, -0.5, -0.2, 0, 0.3, 0.5, 1.5, 127.5, 254.6, 255.7, 300, 70000]
    x = ops.cast(np.array(values, np.float32), source)

    np.testing.assert_array_equal(ops.cast(x, dtype), tf.saturate_cast(x, dtype).numpy())


def test_the_layout_stays_and_the_host_casts_labels() -> None:
    specs = [TensorSpec((None, None, 3), "uint8", "HWC"), TensorSpec((), "int64")]
    traced = trace(lambda x, y: (ops.cast(x, "float32"), ops.cast(y, "int32")), flatten((0, 0))[1], specs)

    assert traced is not None
    assert [value.spec for value in traced.outputs] == [
        TensorSpec((None, None, 3), "float32", "HWC"),
        TensorSpec((), "int32"),
    ]


def test_a_cast_to_the_same_type_is_an_identity() -> None:
    assert Cast("uint8").is_identity(TensorSpec((2,), "uint8"))
    assert not Cast("uint8").is_identity(TensorSpec((2,), "int8"))


test_mistakes_name_what_is_needed = refused(
    (SpecError, "cast needs numbers, got bytes", lambda: ops.cast(b"x", "uint8")),
    (SpecError, "cast needs a numeric dtype", lambda: ops.cast(1, bytes)),
    (PlanTypeError, "complex64", lambda: ops.cast(1, "complex64")),
)


BYTES = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
WORDS = np.arange(65536, dtype=np.uint32).astype(np.uint16).reshape(256, 256, 1)
FLOATS = np.linspace(-0.3, 1.3, 3000, dtype=np.float32).reshape(50, 20, 3)


def pixel(value: Any, dtype: Any) -> Any:
    """An image of one value."""
    return np.full((1, 1, 1), value, dtype)


@pytest.mark.parametrize(
    ("value", "source", "dtype", "expected"),
    [
        (255, "uint8", "float32", 1.0),
        (51, "uint8", "float32", 0.2),
        (0.5, "float32", "uint8", 127),
        (1.2, "float32", "uint8", 255),
        (-0.1, "float32", "uint8", 0),
        (0.999, "float32", "uint8", 255),
        (0.997, "float32", "uint8", 254),
        (0x1234, "uint16", "uint8", 0x12),
        (0x12, "uint8", "uint16", 0x1200),
        (65535, "uint16", "float32", 1.0),
        (1.0, "float32", "uint16", 65535),
        (0.5, "float16", "uint8", 127),
        (0.5, "float16", "float32", 0.5),
    ],
)
def test_values_worked_out_by_hand(value: float, source: str, dtype: str, expected: float) -> None:
    got = ops.convert_image_dtype(pixel(value, source), dtype)

    assert got.dtype == dtype
    assert got.item() == pytest.approx(expected, abs=1e-7)


def test_bytes_survive_the_way_to_floats_and_back() -> None:
    np.testing.assert_array_equal(ops.convert_image_dtype(ops.convert_image_dtype(BYTES, "float32"), "uint8"), BYTES)
    np.testing.assert_array_equal(ops.convert_image_dtype(ops.convert_image_dtype(BYTES, "uint16"), "uint8"), BYTES)


@pytest.mark.tf
@pytest.mark.parametrize("x", [BYTES, WORDS, FLOATS], ids=["uint8", "uint16", "float32"])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_converted_images_are_tensorflows(tf: Any, x: Any, dtype: str) -> None:
    expected = tf.image.convert_image_dtype(x, dtype, saturate=True).numpy()

    np.testing.assert_array_equal(ops.convert_image_dtype(x, dtype), expected)


def test_batches_and_both_layouts_are_taken() -> None:
    assert ops.convert_image_dtype(np.stack([BYTES, BYTES]), "float32").shape == (2, 16, 16, 1)
    for layout in ("HWC", "CHW"):
        spec = TensorSpec((3, 3, 3), "uint8", layout)
        traced = trace(lambda x: ops.convert_image_dtype(x, "float32"), flatten(0)[1], [spec])
        assert traced is not None
        assert traced.outputs[0].spec == TensorSpec((3, 3, 3), "float32", layout)


test_types_without_a_range_are_refused = refused(
    (SpecError, "uint16, float16, float32, got int64", lambda: ops.convert_image_dtype(pixel(0, "int64"), "uint8")),
    (SpecError, "got int32", lambda: ops.convert_image_dtype(BYTES, "int32")),
    (SpecError, "decode", lambda: ops.convert_image_dtype(b"xyz", "float32")),
)


WIDE = np.random.default_rng(16).integers(0, 65536, (3, 12, 14, 3)).astype(np.uint16)

MOVES: dict[str, Callable[[Any], Any]] = {
    "crop_to_bounding_box": lambda x: ops.crop_to_bounding_box(x, 1, 2, 6, 7),
    "random_crop": lambda x: ops.random_crop(x, (5, 6), seed=1),
    "flip_left_right": ops.flip_left_right,
    "random_flip_up_down": lambda x: ops.random_flip_up_down(x, seed=1),
    "rot90": ops.rot90,
    "pad_to_bounding_box": lambda x: ops.pad_to_bounding_box(x, 1, 2, 16, 18),
    "resize_with_crop_or_pad": lambda x: ops.resize_with_crop_or_pad(x, 16, 8),
    "resize nearest": lambda x: ops.resize(x, (8, 9), method="nearest"),
    "transpose": ops.transpose,
}
REALS: dict[str, Callable[[Any], Any]] = {
    "resize": lambda x: ops.resize(x, (8, 9)),
    "normalize": lambda x: ops.normalize(x, [1e4] * 3, [2e4] * 3),
    "cast": lambda x: ops.cast(x, "float32"),
    "convert_image_dtype": lambda x: ops.convert_image_dtype(x, "float32"),
}


@pytest.mark.parametrize("kind", EXECUTORS)
def test_moved_pixels_keep_all_their_bits(kind: str) -> None:
    ds = gp.Dataset.from_tensor_slices(WIDE).map(lambda x: {name: op(x) for name, op in MOVES.items()}, traced=True)
    plain = list(ds.with_options(on("numpy")).iterator(epoch=0))
    specs: Any = ds.element_spec

    assert {name: specs[name].dtype for name in MOVES} == dict.fromkeys(MOVES, np.dtype(np.uint16))
    for got, expected, source in zip(ds.with_options(on(kind)).iterator(epoch=0), plain, WIDE, strict=True):
        for name in MOVES:
            np.testing.assert_array_equal(got[name], expected[name], err_msg=name)
        np.testing.assert_array_equal(got["rot90"], np.rot90(source))
        np.testing.assert_array_equal(got["crop_to_bounding_box"], source[1:7, 2:9])
        assert set(np.unique(got["resize nearest"])) <= set(np.unique(source))


@pytest.mark.parametrize("kind", EXECUTORS)
def test_computed_pixels_are_those_of_the_same_floats(kind: str) -> None:
    ds = gp.Dataset.from_tensor_slices(WIDE).map(lambda x: {name: op(x) for name, op in REALS.items()}, traced=True)

    for got, source in zip(ds.with_options(on(kind)), WIDE, strict=True):
        real = source.astype(np.float32)
        assert {name: value.dtype for name, value in got.items()} == dict.fromkeys(REALS, np.dtype(np.float32))
        np.testing.assert_array_equal(got["cast"], real)
        # One unit in the last place: a product with 1 / 65535 or 1 / std instead of a quotient.
        np.testing.assert_allclose(got["convert_image_dtype"], real / 65535, rtol=3e-7)
        np.testing.assert_allclose(got["normalize"], (real - 1e4) / 2e4, rtol=3e-7, atol=1e-6)
        # float32 weights of 16-bit samples: 65535 * 2**-20
        np.testing.assert_allclose(got["resize"], ops.resize(real, (8, 9)), atol=0.1)
