"""What a Sample refuses: each kind of bad input has an error that says what is needed, what came, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, Options, TensorSpec, ops
from gpupipe.errors import DataError, PlanTypeError, ShapeError, SpecError
from gpupipe.ops import Sample
from gpupipe.transform.machine import has_dali

IMAGE = np.zeros((20, 30, 3), np.uint8)
MASK = np.zeros((20, 30, 1), np.uint8)
BOX = [[1, 2, 3, 4]]

SPEC = TensorSpec((20, 30, 3), "uint8")

BACKENDS = ["numpy"] + ["dali"] * has_dali()

flip = ops.flip_left_right


def boxed(image: Any = IMAGE, boxes: Any = BOX, **parts: Any) -> Sample:
    return Sample(image, boxes, **parts)


BAD: dict[str, tuple[type[Exception], str, Callable[[], Any]]] = {
    "boxes of five numbers": (
        SpecError,
        r"Sample needs boxes as float32\[N,4\], got .*\[2,5\]; see ops.convert_boxes",
        lambda: boxed(boxes=np.zeros((2, 5))),
    ),
    "one box without a row": (
        SpecError,
        r"Sample needs boxes as float32\[N,4\], got",
        lambda: boxed(boxes=[1, 2, 3, 4]),
    ),
    "boxes of text": (PlanTypeError, r"Sample needs boxes as float32\[N,4\], got a list", lambda: boxed(boxes=["a"])),
    "boxes of unequal length": (PlanTypeError, "Sample needs boxes as", lambda: boxed(boxes=[[1, 2, 3, 4], [1, 2]])),
    "boxes with None": (
        PlanTypeError,
        r"Sample needs boxes as float32\[N,4\], got a list with None$",
        lambda: boxed(boxes=[[None, 1, 2, 3]]),
    ),
    "boxes of digits": (
        PlanTypeError,
        r"Sample needs boxes as float32\[N,4\], got a list of <U1$",
        lambda: boxed(boxes=[["1", "2", "3", "4"]]),
    ),
    "boxes of truth values": (PlanTypeError, "got a list of bool$", lambda: boxed(boxes=[[True, False, True, True]])),
    "a box with a truth value among large integers": (
        PlanTypeError,
        "got a list with True$",
        lambda: boxed(boxes=[[0, True, 1 << 70, 3]]),
    ),
    "complex boxes": (
        PlanTypeError,
        r"Sample needs boxes as float32\[N,4\], got complex128\[2, 4\]$",
        lambda: boxed(boxes=np.zeros((2, 4), complex)),
    ),
    "a box that no float holds": (
        DataError,
        r"^Sample: needs boxes of numbers up to 3\.4e38, which float32 holds, got an integer beyond 1e308$",
        lambda: boxed(boxes=[[0, 0, 10**400, 1]]),
    ),
    "no image": (
        PlanTypeError,
        "an op needs an image, or a tuple of at least one, got an empty tuple",
        lambda: flip(()),
    ),
    "keypoints of four numbers": (
        SpecError,
        r"Sample needs keypoints as float32\[K,2\]",
        lambda: boxed(keypoints=np.zeros((5, 4))),
    ),
    "labels for other boxes": (
        SpecError,
        "Sample needs a label for each box, got 3 for 1 boxes",
        lambda: boxed(labels=np.zeros(3)),
    ),
    "keypoints for other boxes": (
        SpecError,
        "Sample needs keypoints for each box, got 2 for 1 boxes",
        lambda: boxed(keypoints=np.zeros((2, 17, 3))),
    ),
    "several images": (
        PlanTypeError,
        "Sample needs one image, got a tuple; masks= takes the others",
        lambda: Sample((IMAGE, MASK)),
    ),
    "a Sample in a Sample": (PlanTypeError, "Sample needs one image, got a Sample", lambda: Sample(boxed())),
    "a Sample in a tuple": (
        PlanTypeError,
        r"needs one Sample or a tuple of images, got a tuple with a Sample; see Sample\(masks=\)",
        lambda: flip((boxed(), MASK)),
    ),
    "an image that is not decoded": (SpecError, r"needs an image .*decode it first", lambda: flip(boxed(b"\xff\xd8"))),
    "a mask of another size": (
        ShapeError,
        r"flip_left_right: needs images of one size, got \[20, 30\] and \[19, 30\]; resize them first$",
        lambda: flip(boxed(masks=MASK[1:])),
    ),
    "masks of each object": (
        ShapeError,
        r"flip_left_right: needs images of one size, got \[20, 30\] and \[2, 20\]; .*ops.transpose\(masks, 'HWC'\)",
        lambda: flip(boxed(masks=np.zeros((2, 20, 30), np.uint8))),
    ),
    "a number as boxes": (PlanTypeError, r"Sample needs boxes as float32\[N,4\], got 5$", lambda: boxed(boxes=5)),
    "a number as keypoints": (
        PlanTypeError,
        r"Sample needs keypoints as float32\[K,2\].*, got .*1\.5",
        lambda: boxed(keypoints=np.float64(1.5)),
    ),
    "a dict as boxes": (
        PlanTypeError,
        r"Sample needs boxes as float32\[N,4\], got \{'x1': 3\}",
        lambda: boxed(boxes={"x1": 3}),
    ),
    "a box that float32 does not hold": (
        DataError,
        r"Sample: needs boxes of numbers up to 3\.4e38, which float32 holds, got \[1\.0, 2\.0, 3\.0, 1e\+300\]",
        lambda: boxed(boxes=[[1, 2, 3, 4], [1, 2, 3, 1e300]]),
    ),
    "keypoints that float32 does not hold": (
        DataError,
        "Sample: needs keypoints of numbers up to",
        lambda: boxed(keypoints=np.array([[-1e300, 0]])),
    ),
    "a box that an op moves beyond float32": (
        DataError,
        "resize: needs boxes of numbers up to",
        lambda: ops.resize(boxed(boxes=[[0, 0, 3e38, 1]]), (200, 300)),
    ),
    "keypoints that an op moves beyond float32": (
        DataError,
        "resize: needs keypoints of numbers up to",
        lambda: ops.resize(Sample(IMAGE, keypoints=[[0, 3e38]]), (200, 300)),
    ),
    "boxes in another form that float32 does not hold": (
        DataError,
        "convert_boxes: needs boxes of numbers up to",
        lambda: ops.convert_boxes(np.array([[1e300, 0, 1, 1]]), "xywh", "xyxy"),
    ),
    "a mask without channels": (SpecError, "add a channel axis to the array", lambda: flip(boxed(masks=MASK[..., 0]))),
    "a box that ends before it begins": (
        DataError,
        r"needs boxes \(x1, y1, x2, y2\) with x1 <= x2 .*got \[5.0, 2.0, 3.0, 4.0\]; of other forms ops.convert_boxes",
        lambda: flip(boxed(boxes=[[1, 2, 3, 4], [5, 2, 3, 4]])),
    ),
    "a box of no numbers": (
        DataError,
        r"needs boxes of finite numbers, got \[nan",
        lambda: flip(boxed(boxes=[[np.nan, 2, 3, 4]])),
    ),
    "a keypoint of no numbers": (
        DataError,
        "needs keypoints of finite numbers",
        lambda: flip(Sample(IMAGE, keypoints=[[1, np.inf]])),
    ),
    "an op on shapes": (
        PlanTypeError,
        "squeeze needs single values, got a Sample, whose boxes",
        lambda: ops.squeeze(boxed()),
    ),
    "an op that mixes images": (
        PlanTypeError,
        r"aug_mix needs single values, got a Sample.*dataclasses.replace\(s, image=ops.aug_mix\(s.image\)\)",
        lambda: ops.aug_mix(boxed()),
    ),
    "five crops": (PlanTypeError, "five_crop needs one image, got a Sample", lambda: ops.five_crop(boxed(), 5)),
    "stacked Samples": (
        PlanTypeError,
        "stack needs single values, got a Sample",
        lambda: ops.stack([boxed(), boxed()]),
    ),
    "a fill for something else": (
        SpecError,
        "pad needs fill as a number or a dict of 'image' and 'masks'",
        lambda: ops.pad(boxed(), 1, {"boxes": 1}),
    ),
    "a dict of fills without a Sample": (
        PlanTypeError,
        "pad needs numbers for fill, got a dict",
        lambda: ops.pad(IMAGE, 1, {"image": 1}),
    ),
    "methods for masks": (
        SpecError,
        "affine needs one interpolation, or one per image",
        lambda: ops.affine(boxed(), 5, interpolation=("nearest",) * 2),
    ),
    "a function that gives the image alone": (
        PlanTypeError,
        "random_apply needs functions that return what they are given, got ndarray",
        lambda: ops.random_apply(lambda s: s.image, boxed()),
    ),
    "choices with and without boxes": (
        PlanTypeError,
        "random_choice needs Samples with the same parts, got Sample",
        lambda: ops.random_choice([lambda s: s, lambda s: Sample(s.image)], boxed()),
    ),
    "a batch of unequal parts": (
        PlanTypeError,
        "flip_left_right needs one array for each part of a batch",
        lambda: flip(Sample(IMAGE[None], np.zeros((3, 2, 4)))),
    ),
    "SSD's crop without boxes": (
        PlanTypeError,
        "random_iou_crop needs a Sample with boxes, got a Sample without",
        lambda: ops.random_iou_crop(Sample(IMAGE)),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_each_kind_of_bad_input_has_a_clear_error(name: str) -> None:
    kind, text, call = BAD[name]
    with pytest.raises(kind, match=text):
        call()


def test_there_are_15_kinds_and_more() -> None:
    assert len(BAD) >= 15


def test_an_error_of_a_traced_sample_names_the_line() -> None:
    chain = Dataset.from_tensors((IMAGE, np.zeros((2, 5), np.float32)))
    with pytest.raises(
        SpecError, match=r"Sample needs boxes as float32\[N,4\], got float32\[2,5\].*test_sample_errors.py:\d+"
    ):
        chain.map(lambda image, boxes: ops.flip_left_right(Sample(image, boxes)), traced=True)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_bad_box_is_a_bad_element(on_error: Any) -> None:
    boxes = np.array([[[1, 2, 3, 4]], [[5, 2, 3, 4]], [[0, 0, 1, 1]]], np.float32)
    chain = Dataset.from_tensor_slices(Sample(np.stack([IMAGE] * 3), boxes)).map(ops.flip_left_right).batch(3)
    options = Options(device="cpu", backend="numpy", on_error=on_error)

    if on_error == "skip":
        assert [len(batch.boxes) for batch in chain.with_options(options)] == [2]
    else:
        with pytest.raises(DataError, match=r"flip_left_right.*x1 <= x2"):
            list(chain.with_options(options))


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_box_that_float32_does_not_hold_is_a_bad_element(on_error: Any) -> None:
    boxes = np.array([[[1, 2, 3, 4]], [[1, 2, 3, 1e300]], [[0, 0, 1, 1]]])
    chain = Dataset.from_tensor_slices((np.stack([IMAGE] * 3), boxes))
    made = chain.map(lambda image, boxes: Sample(image, boxes), traced=True).batch(3)
    options = Options(device="cpu", backend="numpy", on_error=on_error)

    if on_error == "skip":
        assert [len(batch.boxes) for batch in made.with_options(options)] == [2]
    else:
        with pytest.raises(DataError, match=r"Sample: needs boxes of numbers up to 3\.4e38, .*1e\+300\]"):
            list(made.with_options(options))


MOVING: dict[str, Callable[[Any], Any]] = {
    "flip_left_right": ops.flip_left_right,
    "flip_up_down": ops.flip_up_down,
    "transpose": ops.transpose,
    "rot90": ops.rot90,
    "random_flip_left_right": ops.random_flip_left_right,
    "center_crop": lambda s: ops.center_crop(s, (9, 9)),
    "resize": lambda s: ops.resize(s, (9, 9)),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MOVING)
def test_masks_of_another_size_are_a_bad_element_for_every_op_that_moves_them(name: str, backend: Any) -> None:
    mask = TensorSpec((None, None, 1), "uint8")
    masks = [MASK, MASK[1:], MASK]
    chain = Dataset.from_generator(lambda: ((IMAGE, mask) for mask in masks), output_signature=(SPEC, mask))
    moved = chain.map(lambda image, mask: MOVING[name](Sample(image, masks=mask)), traced=True)
    options, skip = (Options(device="cpu", backend=backend, on_error=kind) for kind in ("raise", "skip"))

    with pytest.raises(ShapeError, match=rf"{name}: needs images of one size, got \[20, 30\] and \[19, 30\]; resize"):
        list(moved.with_options(options))
    assert len(list(moved.with_options(skip))) == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_images_of_another_size_are_refused_by_a_flip_of_several(backend: Any) -> None:
    pairs = [(IMAGE, MASK), (IMAGE, MASK[1:])]
    mask = TensorSpec((None, None, 1), "uint8")
    chain = Dataset.from_generator(lambda: iter(pairs), output_signature=(SPEC, mask))
    moved = chain.map(lambda image, mask: ops.flip_up_down((image, mask)), traced=True)

    with pytest.raises(ShapeError, match=r"flip_up_down: needs images of one size, got \[20, 30\] and \[19, 30\]"):
        list(moved.with_options(Options(device="cpu", backend=backend)))


@pytest.mark.parametrize("name", ["flip_left_right", "transpose"])
def test_masks_whose_other_size_is_known_are_an_error_of_the_line(name: str) -> None:
    chain = Dataset.from_tensors((IMAGE, MASK[1:]))

    with pytest.raises(SpecError, match=rf"{name} needs images of one size, got \[20, 30\] and \[19, 30\].*\.py:\d+"):
        chain.map(lambda image, mask: MOVING[name](Sample(image, masks=mask)), traced=True)


def test_arrays_whose_masks_have_another_size_are_not_transposed() -> None:
    with pytest.raises(ShapeError, match=r"transpose: needs images of one size, got \[20, 30\] and \[19, 30\]"):
        ops.transpose(Sample(IMAGE, masks=MASK[1:]))
    channels = np.zeros((3, 20, 30), np.uint8), np.zeros((1, 19, 30), np.uint8)
    with pytest.raises(ShapeError, match=r"got \[20, 30\] and \[19, 30\]"):
        ops.transpose(Sample(channels[0], masks=channels[1]), "HWC")
    batch = Sample(np.stack([IMAGE] * 2), masks=np.stack([MASK[1:]] * 2))
    with pytest.raises(ShapeError, match=r"got \[20, 30\] and \[19, 30\]"):
        ops.transpose(batch)


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
