"""convert_boxes: forms of boxes, by hand and beside torchvision."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, ops
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.ops import Sample

FORMS = {"xyxy": [10, 20, 40, 60], "yxyx": [20, 10, 60, 40], "xywh": [10, 20, 30, 40], "cxcywh": [25, 40, 30, 40]}
"""One box."""

SHARES = {
    "xyxy": [0.1, 0.25, 0.4, 0.75],
    "yxyx": [0.25, 0.1, 0.75, 0.4],
    "xywh": [0.1, 0.25, 0.3, 0.5],
    "cxcywh": [0.25, 0.5, 0.3, 0.5],
}
"""The same in an image of 80 x 100."""

ALL: dict[str, Any] = {**FORMS, **{f"rel_{name}": box for name, box in SHARES.items()}}


@pytest.mark.parametrize(("one", "other"), list(product(ALL, ALL)))
def test_each_form_to_each(one: str, other: str) -> None:
    made = ops.convert_boxes(np.array([ALL[one]] * 3), one, other, size=(80, 100))

    assert made.dtype == np.float32
    np.testing.assert_allclose(made, [ALL[other]] * 3, rtol=1e-6)


def test_the_size_may_be_that_of_an_image_a_sample_or_traced_numbers() -> None:
    image, boxes = np.zeros((80, 100, 3), np.uint8), np.array([FORMS["xyxy"]])

    def convert(image: Any, boxes: Any, hw: Any) -> Any:
        scaled = ops.resize_shorter(Sample(image, boxes), 40)
        return (
            ops.convert_boxes(boxes, "xyxy", "rel_xyxy", image),
            ops.convert_boxes(scaled.boxes, "xyxy", "rel_xyxy", size=scaled),
            ops.convert_boxes(boxes, "xyxy", "rel_xyxy", size=(hw[0], hw[1])),
            ops.convert_boxes(boxes, "xyxy", "rel_xyxy", size=hw),
        )

    (made,) = Dataset.from_tensors((image, boxes, np.array([80, 100]))).map(convert, traced=True)
    for found in (*made, ops.convert_boxes(boxes, "xyxy", "rel_xyxy", image)):
        np.testing.assert_allclose(found, [SHARES["xyxy"]], rtol=1e-6)


def test_no_boxes_are_float32_of_shape_0_4() -> None:
    assert ops.convert_boxes([], "xywh", "xyxy").shape == (0, 4)
    assert ops.convert_boxes(np.zeros((0, 4)), "rel_yxyx", "xyxy", (2, 3)).dtype == np.float32


def test_errors() -> None:
    boxes = np.zeros((2, 4))
    with pytest.raises(SpecError, match="needs in_fmt from xyxy, yxyx, xywh, cxcywh, each also with rel_"):
        ops.convert_boxes(boxes, "coco", "xyxy")
    with pytest.raises(SpecError, match="convert_boxes needs out_fmt from"):
        ops.convert_boxes(boxes, "xyxy", 3)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=r"needs size= for rel_xyxy and xywh: \(height, width\) in pixels"):
        ops.convert_boxes(boxes, "rel_xyxy", "xywh")
    with pytest.raises(SpecError, match="convert_boxes needs boxes of four numbers each, got float64"):
        ops.convert_boxes(np.zeros((2, 5)), "xywh", "xyxy")
    with pytest.raises(SpecError, match="convert_boxes needs boxes of numbers, got bytes"):
        ops.convert_boxes(np.array([b"a"], object), "xywh", "xyxy")
    with pytest.raises(PlanTypeError, match=r"needs size as \(height, width\) or an image, got bytes; decode it first"):
        ops.convert_boxes(boxes, "xywh", "rel_xywh", b"\xff\xd8")
    with pytest.raises(PlanTypeError, match=r"needs size as two numbers, got 2\.5"):
        ops.convert_boxes(boxes, "xywh", "rel_xywh", 2.5)
    with pytest.raises(SpecError, match="convert_boxes needs height from 1 to"):
        ops.convert_boxes(boxes, "xywh", "rel_xywh", (0, 9))
