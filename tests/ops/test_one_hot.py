"""one_hot, as tf.one_hot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpupipe import ops
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.trace import trace
from gpupipe.spec import TensorSpec, flatten


def test_a_class_is_one_and_the_others_zero() -> None:
    got = ops.one_hot(np.int64(2), 4)

    assert got.dtype == np.float32
    assert got.tolist() == [0, 0, 1, 0]


def test_the_type_can_be_chosen() -> None:
    assert ops.one_hot(1, 2, dtype=bool).tolist() == [False, True]
    assert ops.one_hot(1, 2, 7, -7, dtype="int8").tolist() == [-7, 7]


@pytest.mark.tf
def test_it_is_tensorflows(tf: Any) -> None:
    labels = np.array([[0, 4, -1], [2, 9, 3]], np.int32)

    np.testing.assert_array_equal(ops.one_hot(labels, 5), tf.one_hot(labels, 5).numpy())
    np.testing.assert_array_equal(
        ops.one_hot(labels, 5, 2, 1, "int64"), tf.one_hot(labels, 5, 2, 1, dtype="int64").numpy()
    )


def test_it_is_traced_for_labels() -> None:
    traced = trace(lambda y: ops.one_hot(y, 10), flatten(0)[1], [TensorSpec((), "int64")])

    assert traced is not None
    assert traced.outputs[0].spec == TensorSpec((10,), "float32")


def test_mistakes_name_what_is_needed() -> None:
    with pytest.raises(SpecError, match="one_hot needs integers, got float64"):
        ops.one_hot(1.5, 3)
    with pytest.raises(SpecError, match="depth from 1"):
        ops.one_hot(1, 0)
    with pytest.raises(PlanTypeError, match="an integer for depth"):
        ops.one_hot(1, 2.5)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="on_value that fits uint8"):
        ops.one_hot(1, 3, on_value=0.5, dtype="uint8")
    with pytest.raises(PlanTypeError, match="a number for off_value"):
        ops.one_hot(1, 3, off_value="x")  # type: ignore[arg-type]
