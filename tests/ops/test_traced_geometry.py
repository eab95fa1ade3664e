"""Geometry from traced host values: sizes, windows and probabilities that come from features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpupipe import ops
from gpupipe.errors import ShapeError
from gpupipe.graph.host_values import HostValues, is_image
from gpupipe.graph.trace import trace
from gpupipe.graph.values import Value
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.spec import TensorSpec, flatten
from gpupipe.transform.program import Feed, Program
from tests.conformance.harness import EXECUTORS, make_executor

HEIGHTS, WIDTHS = np.array([20, 31, 44]), np.array([50, 37, 28])
FILES = [encoded(picture(h, w), quality=90) for h, w in zip(HEIGHTS, WIDTHS, strict=True)]
BOXES = np.array([[0, 0, 20, 50], [3, 4, 9, 11], [40, 20, 4, 8]])
SIZES = np.array([7, 12, 9])


def values_of(fn: Callable[..., Any], *columns: Any) -> tuple[tuple[Value, ...], HostValues]:
    """Trace a function of these columns, row by row, and prepare one batch of them."""
    specs = [TensorSpec((), bytes) if isinstance(c[0], bytes) else TensorSpec(c.shape[1:], c.dtype) for c in columns]
    _, structure = flatten(tuple(range(len(columns))))
    traced = trace(fn, structure, specs)
    assert traced is not None
    keys = np.arange(3, dtype=np.uint64)
    return traced.outputs, HostValues(3, lambda i: list(columns[i]), lambda i: keys, seed=1, epoch=0)


def run(kind: str, fn: Callable[..., Any], *columns: Any) -> list[Any]:
    """The rows that an executor gives."""
    outputs, values = values_of(fn, *columns)
    assert all(map(is_image, outputs))
    program = Program(outputs)
    executor = make_executor(kind, program, 3)
    try:
        executor.submit(Feed.of(program, values))
        (column,) = executor.collect()
    finally:
        executor.close()
    return [row.get() if hasattr(row, "get") else row for row in column]


@pytest.mark.conformance
@pytest.mark.parametrize("kind", EXECUTORS)
def test_a_feature_can_be_the_window(kind: str) -> None:
    rows = run(kind, lambda data, box: ops.decode_and_crop_jpeg(data, box), FILES, BOXES)

    for row, data, (y, x, h, w) in zip(rows, FILES, BOXES, strict=True):
        expected = ops.decode_jpeg(data, 3)[y : y + h, x : x + w]
        assert row.shape == expected.shape
        assert np.abs(row.astype(int) - expected).max() <= (8 if kind == "dali-gpu" else 0)


@pytest.mark.conformance
@pytest.mark.parametrize("kind", EXECUTORS)
def test_a_feature_can_be_the_size(kind: str) -> None:
    def chain(data: Any, size: Any) -> Any:
        return ops.resize_shorter(ops.center_crop(ops.decode_jpeg(data, 3), (size * 2, 16)), size, "nearest")

    rows = run(kind, chain, FILES, SIZES)

    for row, data, size in zip(rows, FILES, SIZES.tolist(), strict=True):
        expected = chain(data, size)
        assert row.shape == expected.shape
        assert np.abs(row.astype(int) - expected).max() <= (8 if kind == "dali-gpu" else 0)


def test_sizes_are_known_without_a_pixel() -> None:
    (image,), values = values_of(
        lambda data, size: ops.resize(ops.decode_jpeg(data, 3), (size, 2 * size), preserve_aspect_ratio=True),
        FILES,
        SIZES,
    )

    # min(7/20, 14/50), min(12/31, 24/37), min(9/44, 18/28) of the image's size
    assert values.sizes(image).tolist() == [[6, 14], [12, 14], [9, 6]]


def test_a_feature_that_does_not_fit_blames_its_row() -> None:
    boxes = BOXES + np.array([[0, 0, 0, 0], [25, 0, 0, 0], [0, 0, 0, 0]])
    (image,), values = values_of(lambda data, box: ops.decode_and_crop_jpeg(data, box, 3), FILES, boxes)

    with pytest.raises(ShapeError, match=r"got 9x11 at \(28, 4\) of an image of 31x37") as caught:
        values.sizes(image)

    assert getattr(caught.value, "rows", None) == (1,)
