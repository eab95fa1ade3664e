"""convert_image_dtype: type and range together, as tf.image with saturation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpupipe import ops
from gpupipe.errors import SpecError
from gpupipe.graph.trace import trace
from gpupipe.spec import TensorSpec, flatten

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
def test_it_is_tensorflows(tf: Any, x: Any, dtype: str) -> None:
    expected = tf.image.convert_image_dtype(x, dtype, saturate=True).numpy()

    np.testing.assert_array_equal(ops.convert_image_dtype(x, dtype), expected)


def test_batches_and_both_layouts_are_taken() -> None:
    assert ops.convert_image_dtype(np.stack([BYTES, BYTES]), "float32").shape == (2, 16, 16, 1)
    for layout in ("HWC", "CHW"):
        spec = TensorSpec((3, 3, 3), "uint8", layout)
        traced = trace(lambda x: ops.convert_image_dtype(x, "float32"), flatten(0)[1], [spec])
        assert traced is not None
        assert traced.outputs[0].spec == TensorSpec((3, 3, 3), "float32", layout)


def test_types_without_a_range_are_refused() -> None:
    with pytest.raises(SpecError, match="needs images of uint8, uint16, float16, float32, got int64"):
        ops.convert_image_dtype(np.zeros((1, 1, 1), np.int64), "float32")
    with pytest.raises(SpecError, match="got int32"):
        ops.convert_image_dtype(BYTES, "int32")
    with pytest.raises(SpecError, match="decode"):
        ops.convert_image_dtype(b"xyz", "float32")
