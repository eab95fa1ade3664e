"""cast: toward zero and saturating, as tf.saturate_cast; checked by hand, by exact arithmetic and by TensorFlow."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupipe import ops
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.trace import trace
from gpupipe.ops.cast import Cast
from gpupipe.spec import TensorSpec, flatten

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


def test_mistakes_name_what_is_needed() -> None:
    with pytest.raises(SpecError, match="cast needs numbers, got bytes"):
        ops.cast(b"x", "uint8")
    with pytest.raises(SpecError, match="cast needs a numeric dtype"):
        ops.cast(1, bytes)
    with pytest.raises(PlanTypeError, match="complex64"):
        ops.cast(1, "complex64")
