"""clip_boxes, convert_boxes, and boxes and keypoints of ops that move pixels, by hand and beside torchvision."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from gpupipe import DataError, Dataset, Options, ops
from gpupipe.errors import PlanTypeError, ShapeError, SpecError
from gpupipe.ops import Sample
from tests.ops.originals import torchvision

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


def test_what_cannot_be_clipped_is_an_error() -> None:
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


def test_what_cannot_be_converted_is_an_error() -> None:
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


HEIGHT, WIDTH = 50, 70

MARGIN = 1e-3
"""Positions of some 100 pixels in float32, with sines of torchvision in float32."""


def corners(rng: np.random.Generator) -> tuple[list[list[int]], list[list[int]]]:
    start = [[0, 0], [WIDTH - 1, 0], [WIDTH - 1, HEIGHT - 1], [0, HEIGHT - 1]]
    return start, [[x + int(rng.integers(-8, 9)), y + int(rng.integers(-8, 9))] for x, y in start]


def calls(rng: np.random.Generator, F: Any = None) -> dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]:
    """A call of gpupipe and of torchvision for each op, with drawn numbers."""
    top, left, high, wide = (int(n) for n in rng.integers((0, 0, 10, 10), (20, 20, 30, 40)))
    angle, scale = float(rng.uniform(-180, 180)), float(rng.uniform(0.5, 2))
    shift = [int(n) for n in rng.integers(-9, 9, 2)]
    shear, center = [float(n) for n in rng.uniform(-20, 20, 2)], [float(n) for n in rng.uniform(10, 50, 2)]
    sides = [int(n) for n in rng.integers(0, 9, 4)]
    start, end = corners(rng)
    return {
        "flip_left_right": (ops.flip_left_right, lambda x: F.horizontal_flip(x)),
        "flip_up_down": (ops.flip_up_down, lambda x: F.vertical_flip(x)),
        "crop_to_bounding_box": (
            lambda s: ops.crop_to_bounding_box(s, top, left, high, wide), lambda x: F.crop(x, top, left, high, wide)
        ),
        "center_crop": (lambda s: ops.center_crop(s, (high, wide)), lambda x: F.center_crop(x, [high, wide])),
        "resize": (lambda s: ops.resize(s, (high, wide)), lambda x: F.resize(x, [high, wide])),
        "resize_shorter": (lambda s: ops.resize_shorter(s, high), lambda x: F.resize(x, [high])),
        "pad": (lambda s: ops.pad(s, sides), lambda x: F.pad(x, sides)),
        "affine": (
            lambda s: ops.affine(s, angle, shift, scale, shear, center=center),
            lambda x: F.affine(x, angle, shift, scale, shear, center=center),
        ),
        "rotate": (lambda s: ops.rotate(s, angle), lambda x: F.rotate(x, angle)),
        "rotate, expanded": (lambda s: ops.rotate(s, angle, expand=True), lambda x: F.rotate(x, angle, expand=True)),
        "rotate, around": (lambda s: ops.rotate(s, angle, center=center), lambda x: F.rotate(x, angle, center=center)),
        "perspective": (lambda s: ops.perspective(s, start, end), lambda x: F.perspective(x, start, end)),
    }  # fmt: skip


@pytest.mark.parametrize("name", calls(np.random.default_rng(0)))
def test_boxes_and_keypoints_are_torchvisions(name: str) -> None:
    torch, F = pytest.importorskip("torch"), torchvision().v2.functional
    tv_tensors = importlib.import_module("torchvision.tv_tensors")
    for draw in range(8):
        rng = np.random.default_rng(draw)
        ours, theirs = calls(rng, F)[name]
        low = rng.uniform(0, (WIDTH - 10, HEIGHT - 10), (6, 2))
        boxes = np.concatenate([low, low + rng.uniform(1, 10, (6, 2))], axis=1).astype(np.float32)
        points = rng.uniform(0, (WIDTH, HEIGHT), (5, 2)).astype(np.float32)
        made = ours(Sample(np.zeros((HEIGHT, WIDTH, 3), np.uint8), boxes, keypoints=points))
        size = {"canvas_size": (HEIGHT, WIDTH)}
        box = tv_tensors.BoundingBoxes(torch.tensor(boxes), format="XYXY", clamping_mode=None, **size)
        expected = theirs(box)
        found = theirs(tv_tensors.KeyPoints(torch.tensor(points), **size)).numpy().copy()
        if name.startswith("flip"):  # torchvision's flips take keypoints as numbers of pixels
            found[:, int(name == "flip_up_down")] += 1

        if name == "rotate, expanded":  # torchvision gives boxes another canvas than their image, and other middles
            image = theirs(torch.zeros((3, HEIGHT, WIDTH), dtype=torch.uint8))
            assert made.image.shape[:2] == tuple(image.shape[1:])
            np.testing.assert_allclose(made.boxes, expected.numpy(), atol=1)
            np.testing.assert_allclose(made.keypoints, found, atol=1)
            continue
        assert made.image.shape[:2] == tuple(expected.canvas_size)
        np.testing.assert_allclose(made.boxes, expected.numpy(), atol=MARGIN * 10, err_msg=f"draw {draw}")
        np.testing.assert_allclose(made.keypoints, found, atol=MARGIN * 10, err_msg=f"draw {draw}")
