"""What a Sample and several images refuse: errors that say what is needed, what came, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, TensorSpec, ops
from gpupipe.errors import DataError, GpupipeError, PlanTypeError, ShapeError, SpecError
from gpupipe.ops import Sample
from gpupipe.ops._shared.samples import noise
from gpupipe.transform.machine import has_dali
from tests.ops.refusals import refused
from tests.ops.test_result_dtypes import CALLS
from tests.ops.value_chains import on, png

IMAGE = np.zeros((20, 30, 3), np.uint8)
MASK = np.zeros((20, 30, 1), np.uint8)
BOX = [[1, 2, 3, 4]]

SPEC = TensorSpec((20, 30, 3), "uint8")

BACKENDS = ["numpy"] + ["dali"] * has_dali()

flip = ops.flip_left_right


def image_of(s: Sample) -> Sample:
    return Sample(s.image)


def boxed(image: Any = IMAGE, boxes: Any = BOX, **parts: Any) -> Sample:
    return Sample(image, boxes, **parts)


test_each_kind_of_bad_input_has_a_clear_error = refused(
    (SpecError, r"float32\[N,4\], got .*\[2,5\]; see ops.convert_boxes", lambda: boxed(boxes=np.zeros((2, 5)))),
    (SpecError, r"Sample needs boxes as float32\[N,4\], got", lambda: boxed(boxes=[1, 2, 3, 4])),
    (PlanTypeError, r"Sample needs boxes as float32\[N,4\], got a list", lambda: boxed(boxes=["a"])),
    (PlanTypeError, "Sample needs boxes as", lambda: boxed(boxes=[[1, 2, 3, 4], [1, 2]])),
    (PlanTypeError, r"float32\[N,4\], got a list with None$", lambda: boxed(boxes=[[None, 1, 2, 3]])),
    (PlanTypeError, r"float32\[N,4\], got a list of <U1$", lambda: boxed(boxes=[["1", "2", "3", "4"]])),
    (PlanTypeError, "got a list of bool$", lambda: boxed(boxes=[[True, False, True, True]])),
    (PlanTypeError, "got a list with True$", lambda: boxed(boxes=[[0, True, 1 << 70, 3]])),
    (PlanTypeError, r"float32\[N,4\], got complex128\[2, 4\]$", lambda: boxed(boxes=np.zeros((2, 4), complex))),
    (DataError, r"float32 holds, got an integer beyond 1e308$", lambda: boxed(boxes=[[0, 0, 10**400, 1]])),
    (PlanTypeError, "an op needs an image, or a tuple of at least one, got an empty tuple", lambda: flip(())),
    (SpecError, r"Sample needs keypoints as float32\[K,2\]", lambda: boxed(keypoints=np.zeros((5, 4)))),
    (SpecError, "Sample needs a label for each box, got 3 for 1 boxes", lambda: boxed(labels=np.zeros(3))),
    (SpecError, "needs keypoints for each box, got 2 for 1 boxes", lambda: boxed(keypoints=np.zeros((2, 17, 3)))),
    (PlanTypeError, "Sample needs one image, got a tuple; masks= takes the others", lambda: Sample((IMAGE, MASK))),
    (PlanTypeError, "Sample needs one image, got a Sample", lambda: Sample(boxed())),
    (PlanTypeError, r"a tuple of images, got a tuple with a Sample; see Sample\(mas", lambda: flip((boxed(), MASK))),
    (SpecError, r"needs an image .*decode it first", lambda: flip(boxed(b"\xff\xd8"))),
    (ShapeError, r"one size, got \[20, 30\] and \[19, 30\]; resize them first$", lambda: flip(boxed(masks=MASK[1:]))),
    (ShapeError, r"\[2, 20\]; .*ops.transpose\(masks, 'HWC'\)", lambda: flip(boxed(masks=np.zeros((2, 20, 30), "u1")))),
    (PlanTypeError, r"Sample needs boxes as float32\[N,4\], got 5$", lambda: boxed(boxes=5)),
    (PlanTypeError, r"needs keypoints as float32\[K,2\].*, got .*1\.5", lambda: boxed(keypoints=np.float64(1.5))),
    (PlanTypeError, r"Sample needs boxes as float32\[N,4\], got \{'x1': 3\}", lambda: boxed(boxes={"x1": 3})),
    (DataError, r"float32 holds, got \[1\.0, 2\.0, 3\.0, 1e\+300\]", lambda: boxed(boxes=[[1, 2, 3, 1e300]])),
    (DataError, "Sample: needs keypoints of numbers up to", lambda: boxed(keypoints=np.array([[-1e300, 0]]))),
    (DataError, "resize: needs boxes of numbers", lambda: ops.resize(boxed(boxes=[[0, 0, 3e38, 1]]), (200, 300))),
    (DataError, "resize: needs keypoints of", lambda: ops.resize(Sample(IMAGE, keypoints=[[0, 3e38]]), (200, 300))),
    (DataError, "boxes: needs boxes of numbers up", lambda: ops.convert_boxes([[1e300, 0, 1, 1]], "xywh", "xyxy")),
    (SpecError, "add a channel axis to the array", lambda: flip(boxed(masks=MASK[..., 0]))),
    (DataError, r"x1 <= x2 .*got \[5.0, .*; of other forms ops.conv", lambda: flip(boxed(boxes=[[5, 2, 3, 4]]))),
    (DataError, r"needs boxes of finite numbers, got \[nan", lambda: flip(boxed(boxes=[[np.nan, 2, 3, 4]]))),
    (DataError, "needs keypoints of finite numbers", lambda: flip(Sample(IMAGE, keypoints=[[1, np.inf]]))),
    (PlanTypeError, "squeeze needs single values, got a Sample, whose boxes", lambda: ops.squeeze(boxed())),
    (PlanTypeError, r"aug_mix needs single.*replace\(s, image=ops.aug_mix\(s.image\)\)", lambda: ops.aug_mix(boxed())),
    (PlanTypeError, "five_crop needs one image, got a Sample", lambda: ops.five_crop(boxed(), 5)),
    (PlanTypeError, "stack needs single values, got a Sample", lambda: ops.stack([boxed(), boxed()])),
    (SpecError, "a number or a dict of 'image' and 'masks'", lambda: ops.pad(boxed(), 1, {"boxes": 1})),
    (PlanTypeError, "pad needs numbers for fill, got a dict", lambda: ops.pad(IMAGE, 1, {"image": 1})),
    (SpecError, "one interpolation, or one", lambda: ops.affine(boxed(), 5, interpolation=("nearest",) * 2)),
    (PlanTypeError, "return what they are given, got ndarray", lambda: ops.random_apply(lambda s: s.image, boxed())),
    (PlanTypeError, "Samples with the same parts, got Sample", lambda: ops.random_choice([flip, image_of], boxed())),
    (PlanTypeError, "one array for each part of a batch", lambda: flip(Sample(IMAGE[None], np.zeros((3, 2, 4))))),
    (PlanTypeError, "iou_crop needs a Sample with boxes, got a", lambda: ops.random_iou_crop(Sample(IMAGE))),
)


TURNED_ROUND = ([5, 2, 3, 4], "flip_left_right.*x1 <= x2")
TOO_FAR = ([1, 2, 3, 1e300], r"Sample: needs boxes of numbers up to 3\.4e38, .*")


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize(("bad", "text"), [TURNED_ROUND, TOO_FAR])
def test_a_bad_box_is_a_bad_element(bad: Any, text: str, on_error: Any) -> None:
    boxes = np.array([[[1, 2, 3, 4]], [bad], [[0, 0, 1, 1]]])
    chain = Dataset.from_tensor_slices((np.stack([IMAGE] * 3), boxes))
    made = chain.map(lambda image, boxes: flip(Sample(image, boxes)), traced=True).batch(3)
    options = Options(device="cpu", backend="numpy", on_error=on_error)

    if on_error == "skip":
        assert [len(batch.boxes) for batch in made.with_options(options)] == [2]
    else:
        with pytest.raises(DataError, match=text):
            list(made.with_options(options))


MOVING = "flip_left_right flip_up_down transpose rot90 random_flip_left_right center_crop resize".split()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MOVING)
def test_masks_of_another_size_are_a_bad_element_for_every_op_that_moves_them(name: str, backend: Any) -> None:
    mask = TensorSpec((None, None, 1), "uint8")
    masks = [MASK, MASK[1:], MASK]
    chain = Dataset.from_generator(lambda: ((IMAGE, mask) for mask in masks), output_signature=(SPEC, mask))
    moved = chain.map(lambda image, mask: CALLS[name](Sample(image, masks=mask)), traced=True)
    options, skip = (Options(device="cpu", backend=backend, on_error=kind) for kind in ("raise", "skip"))

    with pytest.raises(ShapeError, match=rf"{name}: needs images of one size, got \[20, 30\] and \[19, 30\]; resize"):
        list(moved.with_options(options))
    assert len(list(moved.with_options(skip))) == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_masks_of_objects_are_channels_of_one_image(backend: Any) -> None:
    masks = np.random.default_rng(0).integers(0, 2, (5, 20, 30), np.uint8)
    chain = Dataset.from_tensors((IMAGE, np.array([[0, 0, 9, 9]] * 5, np.float32), np.arange(5), masks))

    def moved(image: Any, boxes: Any, kept: Any, masks: Any) -> Any:
        s = ops.flip_left_right(Sample(image, boxes, kept, masks=ops.transpose(masks, "HWC")))
        return ops.clip_boxes(ops.crop_to_bounding_box(s, 0, 3, 18, 20)), masks

    ((s, _),) = chain.map(moved, traced=True).with_options(Options(device="cpu", backend=backend))

    np.testing.assert_array_equal(s.masks.transpose(2, 0, 1), masks[:, :18, ::-1][..., 3:23])


@pytest.mark.parametrize("far", [np.inf, -1e39, 10**200], ids=["infinite", "float64", "integer"])
def test_a_point_may_be_as_far_as_it_likes_if_it_has_no_place(far: Any) -> None:
    made = ops.flip_left_right(Sample(IMAGE, keypoints=[[far, 0, 0]]))

    np.testing.assert_array_equal(made.keypoints, np.array([[np.sign(far) * np.inf, 0, 0]], np.float32))
    for points in ([[far, 0, 1]], [[far, 0]], [[0, 0, far]]):
        with pytest.raises(DataError, match="needs keypoints of"):
            ops.flip_left_right(Sample(IMAGE, keypoints=points))


def test_large_integers_are_numbers() -> None:
    assert Sample(IMAGE, boxes=[[0, 0, 1 << 70, 1]]).boxes.tolist() == [[0, 0, 2.0**70, 1]]


def test_points_without_a_place_may_say_anything() -> None:
    points = [[np.nan, np.nan, 0], [1, 2, 2]]
    image = np.zeros((4, 6, 3), np.uint8)

    moved = ops.clip_boxes(ops.flip_left_right(Sample(image, keypoints=points)))

    np.testing.assert_array_equal(moved.keypoints, np.array([[np.nan, np.nan, 0], [5, 2, 2]], np.float32))
    with pytest.raises(DataError, match=r"keypoints of finite numbers, got \[nan, nan, 1\.0\]"):
        ops.flip_left_right(Sample(image, keypoints=[[np.nan, np.nan, 1]]))


@pytest.mark.parametrize("none", [(), [], {}])
def test_no_masks_are_none(none: Any) -> None:
    assert ops.flip_left_right(Sample(np.zeros((4, 6, 3), np.uint8), masks=none)).masks is None


def test_traced_numbers_are_stacked_to_a_box() -> None:
    ds = Dataset.from_tensor_slices(
        (np.zeros((1, 4, 6, 3), np.uint8), np.array([1], np.float32), np.array([3], np.float32))
    )

    def moved(image: Any, low: Any, high: Any) -> Any:
        return ops.flip_left_right(Sample(image, ops.stack([ops.stack([low, low, high, high])])))

    np.testing.assert_array_equal(next(iter(ds.map(moved))).boxes, [[3, 1, 5, 3]])
    with pytest.raises(PlanTypeError, match=r"Sample needs boxes as float32\[N,4\], got a list of traced .*ops\.stack"):
        ds.map(lambda image, low, high: ops.flip_left_right(Sample(image, [[low, low, high, high]])))


def test_a_mask_is_compared_once_however_many_ops_move_it() -> None:
    spec = TensorSpec((None, None, 3), "uint8"), TensorSpec((None, None, 1), "uint8")
    pair = np.zeros((20, 30, 3), np.uint8), np.zeros((19, 30, 1), np.uint8)
    chain = Dataset.from_generator(lambda: iter([pair]), output_signature=spec)

    def moved(image: Any, mask: Any) -> Any:
        return ops.transpose(ops.flip_up_down(ops.flip_left_right(Sample(image, masks=mask))))

    graph = chain.map(moved, traced=True)

    shown = str(graph.explain())

    assert shown.count("reads  sizes of the images of flip_left_right (compared on the host)") == 1
    assert "one_size" not in shown
    with pytest.raises(ShapeError, match=r"flip_left_right: needs images of one size, got \[20, 30\] and \[19, 30\]"):
        list(graph)


OPS: dict[str, Callable[[Any], Any]] = {
    "random_resized_crop": lambda pair: ops.random_resized_crop(pair, (9, 9), scale=(0.2, 0.5)),
    "random_crop": lambda pair: ops.random_crop(pair, (9, 9)),
    "center_crop": lambda pair: ops.center_crop(pair, (9, 9)),
}


def _pairs(*sizes: tuple[int, int]) -> Dataset:
    """Encoded images of 30 x 40 with encoded masks of these sizes."""
    return Dataset.from_tensor_slices(([png(noise(30, 40))] * len(sizes), [png(noise(*size)) for size in sizes]))


def _decoded(op: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda x, y: op((ops.decode_png(x, channels=3), ops.decode_png(y, channels=3)))


# Smaller, and so large that the window of the image lies inside of it: DALI itself would not notice.
SIZES = [(20, 25), (60, 80), (40, 30)]


@pytest.mark.parametrize("backend", ["numpy", "dali"])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_an_image_and_a_mask_of_another_size(op: Callable[[Any], Any], size: tuple[int, int], backend: str) -> None:
    chain = _pairs((30, 40), size).map(_decoded(op)).batch(1).with_options(on(backend))
    items = iter(chain)

    assert [x.shape for x in next(items)] == [(1, 9, 9, 3)] * 2
    with pytest.raises(ShapeError) as caught:
        next(items)

    text = str(caught.value)
    assert "images of one size" in text
    assert str([30, 40]) in text and str([*size]) in text
    assert caught.value.offset == 1
    assert list(items) == []


def test_images_with_channels_first_are_told_so() -> None:
    arrays = np.zeros((40, 60, 3), np.uint8), np.zeros((40, 60, 1), np.uint8)
    spec = gp.TensorSpec((None, None, 3), "uint8"), gp.TensorSpec((None, None, 1), "uint8")
    sources = [Dataset.from_tensors(arrays), Dataset.from_generator(lambda: iter([arrays]), output_signature=spec)]

    for chain in sources:
        for which in (lambda x, y: (ops.transpose(x), ops.transpose(y)), lambda x, y: (x, ops.transpose(y))):
            with pytest.raises(SpecError, match=r"an image \{HWC\}, got .*; move the channels with ops\.transpose"):
                chain.map(lambda x, y, which=which: ops.flip_left_right(which(x, y)), traced=True)


def beside(height: int, width: int, *masks: int) -> Any:
    return flip((np.zeros((height, width, 3), np.uint8), np.zeros(masks, np.uint8)))


def traced(op: Callable[[Any], Any]) -> Dataset:
    return Dataset.from_tensors((IMAGE, MASK[1:])).map(lambda x, mask: op(Sample(x, masks=mask)), traced=True)


APART = r"needs images of one size, got \[20, 30\] and \[19, 30\]"
FIVE = Dataset.from_tensors((IMAGE, np.zeros((2, 5), np.float32)))
PLANES = np.zeros((3, 20, 30), np.uint8), np.zeros((1, 19, 30), np.uint8)
TRANSPOSE = r"images of one size, .*ops\.transpose\(masks, 'HWC'\)"
RESIZE = r"images of one size, got \[\d+, \d+\] and \[\d+, \d+\]; resize them first$"

test_masks_of_another_size_are_refused = refused(
    (SpecError, r"got float32\[2,5\].*_errors.py:\d+", lambda: FIVE.map(lambda x, b: flip(Sample(x, b)))),
    (SpecError, rf"flip_left_right {APART}.*\.py:\d+", lambda: traced(flip)),
    (SpecError, rf"transpose {APART}.*\.py:\d+", lambda: traced(ops.transpose)),
    (ShapeError, rf"transpose: {APART}", lambda: ops.transpose(Sample(IMAGE, masks=MASK[1:]))),
    (ShapeError, APART, lambda: ops.transpose(Sample(PLANES[0], masks=PLANES[1]), "HWC")),
    (ShapeError, APART, lambda: ops.transpose(Sample(np.stack([IMAGE] * 2), masks=np.stack([MASK[1:]] * 2)))),
    (GpupipeError, TRANSPOSE, lambda: beside(40, 60, 5, 40, 60)),  # looks like masks of 5 objects
    (GpupipeError, RESIZE, lambda: beside(40, 60, 60, 40, 60)),  # on its side
    (GpupipeError, RESIZE, lambda: beside(40, 60, 40, 40, 60)),  # a square
    (GpupipeError, RESIZE, lambda: beside(40, 60, 5, 60, 60)),  # of another height
    (GpupipeError, RESIZE, lambda: beside(40, 40, 60, 40, 1)),
)
