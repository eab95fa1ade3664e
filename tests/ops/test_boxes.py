"""clip_boxes and convert_boxes by hand."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from gpupipe import DataError, Dataset, Options, ops
from gpupipe.errors import PlanTypeError, ShapeError, SpecError
from gpupipe.ops import Sample
from tests.ops.refusals import refused

IMAGE = np.zeros((20, 30, 3), np.uint8)

BOXES = np.array([[-5, 2, 5, 12], [25, 15, 35, 25], [40, 0, 50, 10], [3, 3, 3, 9], [0, 0, 30, 20]], np.float32)
"""Half visible, a quarter, not at all, without a width, the whole image."""


def sample(**parts: Any) -> Sample:
    return Sample(IMAGE, BOXES, np.array([10, 11, 12, 13, 14]), **parts)


def test_boxes_are_cut_off_and_those_of_which_nothing_is_left_dropped() -> None:
    made = ops.clip_boxes(sample())

    assert made.boxes.tolist() == [[0, 2, 5, 12], [25, 15, 30, 20], [0, 0, 30, 20]]
    assert made.labels.tolist() == [10, 11, 14]
    assert made.image is IMAGE


@pytest.mark.parametrize(
    ("min_visible", "min_size", "left"),
    [(0.25, 0, [10, 11, 14]), (0.26, 0, [10, 14]), (0.5, 0, [10, 14]), (0.51, 0, [14]), (1, 0, [14]),
     (0, 5, [10, 11, 14]), (0, 5.5, [14]), (0, 21, [])],
)  # fmt: skip
def test_the_share_and_the_size_that_have_to_be_left(min_visible: float, min_size: float, left: list[int]) -> None:
    made = ops.clip_boxes(sample(), min_visible, min_size)

    assert made.labels.tolist() == left
    assert made.boxes.shape == (len(left), 4) and made.boxes.dtype == np.float32


def test_all_that_belongs_to_a_box_is_dropped_with_it() -> None:
    names = np.array([b"a", b"b", b"c", b"d", b"e"], object)
    labels = {"class": np.arange(5), "more": (np.eye(5, dtype=np.float32), names)}
    points = np.arange(5 * 2 * 3, dtype=np.float32).reshape(5, 2, 3)
    made = ops.clip_boxes(Sample(IMAGE, BOXES, labels, points), 0.5)

    assert made.labels["class"].tolist() == [0, 4]
    assert made.labels["more"][0].argmax(axis=1).tolist() == [0, 4]
    assert made.labels["more"][1].tolist() == [b"a", b"e"]
    assert made.keypoints.shape == (2, 2, 3)


def test_keypoints_outside_of_the_image_become_those_that_are_not_labelled() -> None:
    points = np.array([[0, 0, 2], [30, 20, 1], [30.5, 3, 2], [3, -0.5, 2], [7, 8, 0]])

    made = ops.clip_boxes(Sample(IMAGE, keypoints=points))
    without = ops.clip_boxes(Sample(IMAGE, keypoints=points[:, :2]))

    assert made.keypoints.tolist() == [[0, 0, 2], [30, 20, 1], [0, 0, 0], [0, 0, 0], [7, 8, 0]]
    np.testing.assert_array_equal(without.keypoints, points[:, :2])


def test_a_traced_map_and_a_batch_of_arrays_clip_alike() -> None:
    images, labels = np.stack([IMAGE] * 2), np.stack([np.arange(5)] * 2)
    two = Dataset.from_tensor_slices(Sample(images, np.stack([BOXES, BOXES + 3]), labels))
    rows = list(two.map(lambda s: ops.clip_boxes(s, 0.4)).with_options(Options(device="cpu", backend="numpy")))

    for row, shift in zip(rows, (0, 3), strict=True):
        expected = ops.clip_boxes(Sample(IMAGE, BOXES + shift, np.arange(5)), 0.4)
        np.testing.assert_array_equal(row.boxes, expected.boxes)
        np.testing.assert_array_equal(row.labels, expected.labels)
    batch = Sample(np.stack([IMAGE] * 2), np.stack([BOXES[:1]] * 2), np.zeros((2, 1)))
    assert ops.clip_boxes(batch).boxes.tolist() == [[[0, 2, 5, 12]]] * 2
    with pytest.raises(ShapeError, match="needs results of one shape for a batch; call it before the batch"):
        ops.clip_boxes(Sample(np.stack([IMAGE] * 2), np.stack([BOXES[:1], BOXES[2:3]]), np.zeros((2, 1))))


def test_the_size_is_that_of_the_image_at_this_place() -> None:
    def cropped(image: Any, boxes: Any) -> Any:
        return ops.clip_boxes(ops.transpose(ops.crop_to_bounding_box(Sample(image, boxes), 0, 0, 8, 10)))

    (made,) = Dataset.from_tensors((IMAGE, BOXES)).map(cropped, traced=True)

    assert made.boxes.tolist() == [[0, 2, 5, 8], [0, 0, 10, 8]]


test_what_cannot_be_clipped_is_an_error = refused(
    (PlanTypeError, "clip_boxes needs a Sample, got ndarray", lambda: ops.clip_boxes(IMAGE)),
    (SpecError, "a Sample with boxes or keypoints, got one without", lambda: ops.clip_boxes(Sample(IMAGE))),
    (SpecError, "clip_boxes needs min_visible from 0 to 1, got 2", lambda: ops.clip_boxes(sample(), 2)),
    (DataError, r"x1 <= x2 and y1 <= y2, got \[5.0, 2.0", lambda: ops.clip_boxes(Sample(IMAGE, [[5, 2, 1, 9]]))),
)


def test_labels_of_another_number_of_boxes_are_an_error_of_their_element() -> None:
    unequal = Dataset.from_generator(
        lambda: iter([(IMAGE, BOXES, np.arange(4))]), output_types=("uint8", "float32", "int64"),
        output_shapes=((20, 30, 3), (None, 4), (None,)),
    )  # fmt: skip
    with pytest.raises(DataError, match="needs a label and keypoints for each box, got 4 for 5 boxes"):
        list(unequal.map(lambda image, boxes, labels: ops.clip_boxes(Sample(image, boxes, labels))))


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


NO_BOXES = np.zeros((2, 4))


def converted(form: Any, size: Any) -> Any:
    return ops.convert_boxes(NO_BOXES, "xywh", form, size)


test_what_cannot_be_converted_is_an_error = refused(
    (SpecError, "in_fmt from xyxy, .* each also with rel_", lambda: ops.convert_boxes(NO_BOXES, "coco", "xyxy")),
    (SpecError, "convert_boxes needs out_fmt from", lambda: ops.convert_boxes(NO_BOXES, "xyxy", 3)),  # type: ignore[arg-type]
    (SpecError, r"size= for rel_xyxy and xywh: \(height", lambda: ops.convert_boxes(NO_BOXES, "rel_xyxy", "xywh")),
    (SpecError, "boxes of four numbers each, got float64", lambda: ops.convert_boxes(np.zeros((2, 5)), "xywh", "xyxy")),
    (SpecError, "boxes of numbers, got bytes", lambda: ops.convert_boxes(np.array([b"a"], object), "xywh", "xyxy")),
    (PlanTypeError, "size as .* got bytes; decode it first", lambda: converted("rel_xywh", b"\xff\xd8")),
    (PlanTypeError, r"needs size as two numbers, got 2\.5", lambda: converted("rel_xywh", 2.5)),
    (SpecError, "convert_boxes needs height from 1 to", lambda: converted("rel_xywh", (0, 9))),
)
