"""clip_boxes: what is cut off, what is dropped, and what goes with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpupipe import DataError, Dataset, Options, ops
from gpupipe.errors import PlanTypeError, ShapeError, SpecError
from gpupipe.ops import Sample

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
    two = Dataset.from_tensor_slices(
        Sample(np.stack([IMAGE] * 2), np.stack([BOXES, BOXES + 3]), np.stack([np.arange(5)] * 2))
    )
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


def test_errors() -> None:
    with pytest.raises(PlanTypeError, match="clip_boxes needs a Sample, got ndarray"):
        ops.clip_boxes(IMAGE)
    with pytest.raises(SpecError, match="clip_boxes needs a Sample with boxes or keypoints, got one without"):
        ops.clip_boxes(Sample(IMAGE))
    with pytest.raises(SpecError, match="clip_boxes needs min_visible from 0 to 1, got 2"):
        ops.clip_boxes(sample(), 2)
    with pytest.raises(DataError, match=r"needs boxes \(x1, y1, x2, y2\) with x1 <= x2 and y1 <= y2, got \[5.0, 2.0"):
        ops.clip_boxes(Sample(IMAGE, [[5, 2, 1, 9]]))
    unequal = Dataset.from_generator(
        lambda: iter([(IMAGE, BOXES, np.arange(4))]), output_types=("uint8", "float32", "int64"),
        output_shapes=((20, 30, 3), (None, 4), (None,)),
    )  # fmt: skip
    with pytest.raises(DataError, match="needs a label and keypoints for each box, got 4 for 5 boxes"):
        list(unequal.map(lambda image, boxes, labels: ops.clip_boxes(Sample(image, boxes, labels))))
