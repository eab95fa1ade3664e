"""Samples: boxes, keypoints and masks go where their image goes, on every executor and in every kind of element."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, TensorSpec, ops
from gpupipe.classes import dataclass
from gpupipe.errors import PlanTypeError, ShapeError
from gpupipe.graph.op import Op
from gpupipe.ops import Sample
from gpupipe.ops._shared.composite import Composite, Row, call
from gpupipe.ops._shared.warp import Warping
from gpupipe.ops.catalogue import CATALOGUE
from gpupipe.spec import flatten
from gpupipe.transform.machine import has_dali
from tests.ops.painted import MOVES, Move, check, check_image, drawn, painted, program
from tests.ops.test_result_dtypes import CALLS
from tests.ops.value_chains import on

BACKENDS = ["numpy"] + ["dali"] * has_dali()

COUNT = 6

ENLARGING = {"rand_augment", "trivial_augment_wide", "auto_augment"}
"""Ops whose images differ by more than 2 levels between executors: equalizing enlarges 1 level."""


def samples(count: int = COUNT, **settings: Any) -> Dataset:
    """Painted Samples, numbered from 0."""
    rng = np.random.default_rng(4)
    parts = [painted(rng, **settings) for _ in range(count)]
    columns = zip(*(flatten(part)[0] for part in parts), strict=True)
    return Dataset.from_tensor_slices(flatten(parts[0])[1].unflatten([np.stack(column) for column in columns]))


def assert_same(got: Sample, expected: Sample) -> None:
    (one, nesting), (other, same) = flatten(got), flatten(expected)
    assert nesting == same
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


@pytest.mark.parametrize("move", MOVES.values(), ids=list(MOVES))
def test_what_was_painted_stays_in_its_box_and_the_image_moves_as_without_it_on_every_executor(move: Move) -> None:
    chain = samples().map(move.call, traced=True)
    alone = samples().map(lambda s: move.call(s.image), traced=True)
    rows = list(chain.with_options(on("numpy")))

    assert all(sample.boxes.dtype == sample.keypoints.dtype == np.float32 for sample in rows)
    assert sum(check(sample, move.exact) for sample in rows) >= COUNT
    for sample, image in zip(rows, alone.with_options(on("numpy")), strict=True):
        np.testing.assert_array_equal(sample.image, image)
    if not has_dali():
        return
    for one, other in zip(rows, chain.with_options(on("dali")), strict=True):
        for a, b in zip(flatten(one)[0][1:4], flatten(other)[0][1:4], strict=True):
            np.testing.assert_array_equal(a, b)
        assert one.image.shape == other.image.shape
        for a, b in zip(one.masks, other.masks, strict=True):
            assert (a != b).mean() < 0.01  # the other of two pixels as near
        apart = np.abs(one.image.astype(float) - other.image)[1:-1, 1:-1]
        assert move.name in ENLARGING or (apart > 2).mean() < 0.01


def test_positions_are_those_computed_by_hand() -> None:
    image = np.zeros((10, 20, 3), np.uint8)
    s = Sample(image, [[2, 1, 6, 4]], keypoints=[[2.5, 1.5]])

    for made, box, point in (
        (ops.flip_left_right(s), [14, 1, 18, 4], [17.5, 1.5]),
        (ops.flip_up_down(s), [2, 6, 6, 9], [2.5, 8.5]),
        (ops.rot90(s), [1, 14, 4, 18], [1.5, 17.5]),
        (ops.rot90(s, 2), [14, 6, 18, 9], [17.5, 8.5]),
        (ops.rot90(s, -1), [6, 2, 9, 6], [8.5, 2.5]),
        (ops.crop_to_bounding_box(s, 1, 3, 5, 6), [-1, 0, 3, 3], [-0.5, 0.5]),
        (ops.center_crop(s, (14, 10)), [-3, 3, 1, 6], [-2.5, 3.5]),
        (ops.pad(s, (1, 2)), [3, 3, 7, 6], [3.5, 3.5]),
        (ops.resize(s, (20, 10)), [1, 2, 3, 8], [1.25, 3.0]),
        (ops.resize_shorter(s, 5), [1, 0.5, 3, 2], [1.25, 0.75]),
        (ops.resize_with_pad(s, 20, 20), [2, 6, 6, 9], [2.5, 6.5]),
        (ops.affine(s, translate=(2, -1)), [4, 0, 8, 3], [4.5, 0.5]),
        (ops.affine(s, scale=2.0), [-6, -3, 2, 3], [-5, -2]),
        (ops.perspective(s, coefficients=(0.5, 0, 1, 0, 0.5, 0, 0, 0)), [2, 2, 10, 8], [3, 3]),
        (ops.rotate(s, 90), [6, 9, 9, 13], [6.5, 12.5]),
        (ops.rotate(s, 90, expand=True), [1, 14, 4, 18], [1.5, 17.5]),
    ):
        np.testing.assert_allclose(made.boxes, [box], atol=1e-5)
        np.testing.assert_allclose(made.keypoints, [point], atol=1e-5)
    np.testing.assert_allclose(ops.rotate(s, 45, center=(4, 2.5)).boxes, [_turned(4, 3)], atol=1e-5)


def _turned(width: float, height: float) -> list[float]:
    """The box around (4, 2.5) of a box of this size that is turned by 45 degrees."""
    half = (width + height) / 2 * np.sqrt(0.5)
    return [4 - half, 2.5 - half, 4 + half, 2.5 + half]


def test_a_box_beyond_the_horizon_of_a_perspective_stays_finite() -> None:
    s = Sample(np.zeros((10, 10, 1), np.uint8), [[2, 2, 4, 4], [2, 2, 200, 4], [100, 0, 200, 9]], keypoints=[[99, 1]])

    made = ops.perspective(s, coefficients=(1, 0, 0, 0, 1, 0, 0.02, 0))  # x / (1 - x / 50)

    assert np.isfinite(made.boxes).all() and np.isfinite(made.keypoints).all()
    assert made.boxes[1, 2] > 1e4 and made.boxes[1, 0] == made.boxes[0, 0]
    assert ops.clip_boxes(made).boxes.shape == (2, 4) and abs(made.keypoints[0, 0]) > 1e4


def convex(rng: np.random.Generator, height: int, width: int) -> Any:
    """The corners of an image, float64[4,2], somewhere else: a convex quadrilateral whose first corner stays first."""
    while True:
        ends = rng.uniform(-0.5, 1.5, (4, 2)) * (width, height)
        sides = np.roll(ends, -1, 0) - ends
        turns = sides[:, 0] * np.roll(sides, -1, 0)[:, 1] - sides[:, 1] * np.roll(sides, -1, 0)[:, 0]
        if (turns > 0.02 * width * height).all():
            return ends


@pytest.mark.parametrize("backend", [*BACKENDS, "fast"])
def test_objects_stay_in_their_boxes_after_perspectives_however_strong(backend: str) -> None:
    rng = np.random.default_rng(1)
    rows = [(painted(rng), convex(rng, 60, 80)) for _ in range(60)]
    corners = [(0, 0), (80, 0), (80, 60), (0, 60)]
    ends = np.array([end for _, end in rows], np.float32)
    columns = zip(*(flatten(part)[0] for part, _ in rows), strict=True)
    parts = flatten(rows[0][0])[1].unflatten([np.stack(column) for column in columns])

    def moved(s: Any, end: Any) -> Any:
        places = [[end[i, 0], end[i, 1]] for i in range(4)]
        return ops.perspective(s, corners, places, "nearest")

    made = list(Dataset.from_tensor_slices((parts, ends)).map(moved, traced=True).with_options(on(backend)))

    assert sum(check(replace(sample, keypoints=sample.keypoints[:0]), False) for sample in made) > 60
    for sample, end in zip(made, ends, strict=True):
        assert ((sample.keypoints[:, :2] >= end.min(axis=0)) & (sample.keypoints[:, :2] <= end.max(axis=0))).all()
        low, high = end.min(axis=0) - 1e-2, end.max(axis=0) + 1e-2
        assert (sample.boxes[:, :2] >= low).all() and (sample.boxes[:, 2:] <= high).all()


def test_a_position_is_where_its_pixels_are_also_where_the_horizon_goes_through_the_image() -> None:
    """(x, y) goes to (50 + 600 / (x - 50), 10 + 20 (y - 10) / (x - 50)): the horizon is in the middle, at x = 50."""
    for left, right in ((5, 30), (65, 95)):
        image = np.zeros((20, 100, 1), np.uint8)
        image[8:12, left:right] = 1
        s = Sample(image, [[left, 8, right, 12]], keypoints=[[left, 10], [right, 10]])

        made = ops.perspective(s, coefficients=(-1, 0, 38, -0.2, -0.6, 16, -0.02, 0))

        rows, columns = np.nonzero(made.image[..., 0])
        around = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        np.testing.assert_allclose(made.boxes, [around], atol=1)
        np.testing.assert_allclose(made.keypoints, [[50 + 600 / (x - 50), 10] for x in (left, right)], rtol=1e-5)


def test_a_map_that_cannot_be_inverted_moves_images_alone() -> None:
    image, flat = np.ones((10, 11, 1), np.uint8), (0, 0, 3, 0, 1, 0, 0, 0)

    assert ops.perspective(image, coefficients=flat).shape == image.shape
    with pytest.raises(ShapeError, match="perspective needs a map that can be inverted, to move boxes or keypoints"):
        ops.perspective(Sample(image, [[1, 2, 3, 4]]), coefficients=flat)


@pytest.mark.parametrize("scale", [0.8, 1.0])
def test_corners_that_are_drawn_on_a_line_leave_a_sample_alone(scale: float) -> None:
    """Of small images that is often so; some of the maps had no inverse, and others led nearly all to infinity."""
    for seed in range(300):
        height, width = 9 + seed % 4, 9 + seed % 5
        s = Sample(np.ones((height, width, 1), np.uint8), [[1, 1, 8, 8]])

        made = ops.random_perspective(s, scale, 1.0, seed=seed)

        assert np.isfinite(made.boxes).all()


def test_keypoints_of_visibility_0_stay_where_they_are() -> None:
    points = np.array([[[0, 0, 0], [3, 4, 1]], [[5, 6, 2], [0, 0, 0]]], np.float32)
    s = Sample(np.zeros((10, 20, 3), np.uint8), [[0, 0, 4, 4]] * 2, keypoints=points)

    moved = ops.flip_left_right(s).keypoints

    assert moved.tolist() == [[[0, 0, 0], [17, 4, 1]], [[15, 6, 2], [0, 0, 0]]]


def test_empty_sets_stay_empty() -> None:
    s = Sample(np.zeros((10, 20, 3), np.uint8), [], np.zeros(0, np.int64), np.zeros((0, 17, 3)))
    moves: list[Any] = [ops.flip_up_down, lambda s: ops.rotate(s, 10), ops.clip_boxes, ops.random_iou_crop]

    for move in moves:
        moved = move(s)
        assert moved.boxes.shape == (0, 4) and moved.boxes.dtype == np.float32
        assert moved.labels.shape == (0,) and moved.keypoints.shape == (0, 17, 3)


def test_transpose_moves_the_channels_of_image_and_masks() -> None:
    made = ops.transpose(painted(np.random.default_rng(7)))

    assert made.image.shape == (3, 60, 80)
    assert [mask.shape for mask in made.masks] == [(1, 60, 80), (1, 60, 80), (4, 60, 80)]


def test_fill_and_interpolation_are_those_of_the_image() -> None:
    s = Sample(np.full((4, 4, 3), 200, np.uint8), masks=np.full((4, 4, 1), 7, np.uint8))

    shifted = ops.affine(s, translate=(2, 0), interpolation="bilinear", fill=9)
    half = ops.affine(s, translate=(1.5, 0), interpolation="bilinear")
    ignored = ops.pad(s, 1, {"image": (1, 2, 3), "masks": 255})

    assert shifted.image[0, 0].tolist() == [9, 9, 9] and shifted.masks[0, :, 0].tolist() == [0, 0, 7, 7]
    assert half.image[0, 1, 0] == 100 and set(half.masks.ravel().tolist()) == {0, 7}
    assert ignored.image[0, 0].tolist() == [1, 2, 3] and ignored.masks[0, 0] == 255


def test_masks_may_be_one_image_or_a_dict() -> None:
    one = np.arange(16, dtype=np.uint8).reshape(4, 4, 1)
    s = Sample(np.zeros((4, 4, 3), np.uint8), masks={"stuff": one, "things": one + 1})

    made = ops.flip_left_right(s)

    assert list(made.masks) == ["stuff", "things"]
    np.testing.assert_array_equal(made.masks["things"], one[:, ::-1] + 1)


def test_return_params_comes_beside_the_sample() -> None:
    s, window = ops.random_crop(painted(np.random.default_rng(8)), (30, 40), seed=3, return_params=True)

    assert s.image.shape == (30, 40, 3) and window.tolist()[2:] == [30, 40]
    expected = painted(np.random.default_rng(8)).boxes - window[[1, 0, 1, 0]]
    np.testing.assert_array_equal(s.boxes, expected)


# ---- elements


def augment(s: Any) -> Any:
    s = ops.random_flip_left_right(ops.random_resized_crop(s, (32, 48), scale=(0.3, 1.0)))
    return ops.clip_boxes(s, 0.2)


def boxed(count: int = COUNT) -> Dataset:
    """Samples with 0 to 3 boxes, with their numbers."""
    rng = np.random.default_rng(9)
    kinds = [painted(rng, boxes=number % 4) for number in range(count)]
    parts = [Sample(s.image, s.boxes, {"class": s.labels, "score": s.labels * 0.5}) for s in kinds]

    def made() -> Any:
        return iter([(s, number) for number, s in enumerate(parts)])

    labels = {"class": TensorSpec((None,), "int64"), "score": TensorSpec((None,), "float64")}
    spec = Sample(TensorSpec((60, 80, 3), "uint8"), TensorSpec((None, 4), "float32"), labels)
    return Dataset.from_generator(made, output_signature=(spec, TensorSpec((), "int64")))


@pytest.mark.parametrize("backend", BACKENDS)
def test_padded_and_ragged_batches_hold_the_boxes_of_their_rows(backend: str) -> None:
    chain = boxed().map(lambda s, n: (augment(s), n)).with_options(on(backend))
    rows = [s for s, _ in chain]

    ((padded, numbers),) = chain.padded_batch(COUNT)
    ((ragged, _),) = chain.ragged_batch(COUNT)

    assert isinstance(padded, Sample) and numbers.tolist() == list(range(COUNT))
    assert sum(len(row.boxes) for row in rows) > 3
    for number, row in enumerate(rows):
        count = len(row.boxes)
        np.testing.assert_array_equal(padded.boxes[number, :count], row.boxes)
        assert not padded.boxes[number, count:].any()
        np.testing.assert_array_equal(ragged.boxes[number], row.boxes)
        np.testing.assert_array_equal(ragged.labels["class"][number], row.labels["class"])
        np.testing.assert_array_equal(ragged.image[number], row.image)


def test_a_batch_of_arrays_draws_for_each_row() -> None:
    batch = next(iter(samples().batch(4)))

    made = ops.random_crop(batch, (30, 40))

    assert (
        made.image.shape == (4, 30, 40, 3) and made.boxes.shape == (4, 2, 4) and made.masks[2].shape == (4, 30, 40, 4)
    )
    assert len({tuple(box) for box in (batch.boxes - made.boxes)[:, 0].tolist()}) > 1
    for row in range(4):
        leaves, nesting = flatten(made)
        check(nesting.unflatten([leaf[row] for leaf in leaves]), True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_map_after_the_batch_moves_each_row(backend: str) -> None:
    before = samples().map(augment_alike).batch(3).with_options(on(backend))
    after = samples().batch(3).map(augment_alike).with_options(on(backend))

    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one.boxes, other.boxes)
        np.testing.assert_array_equal(one.masks[0], other.masks[0])


def augment_alike(s: Any) -> Any:
    return ops.random_flip_left_right(ops.random_crop(s, (30, 40), seed=1), seed=2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_clip_moves_its_boxes_as_an_image_does(backend: str) -> None:
    frames = np.stack([painted(np.random.default_rng(3)).image] * 3)
    boxes = np.array([[[1, 2, 30, 20]], [[2, 2, 31, 20]], [[3, 2, 32, 20]]], np.float32)

    def clip(frames: Any, boxes: Any) -> Any:
        return ops.flip_left_right(Sample(frames, boxes))

    (made,) = Dataset.from_tensors((frames, boxes)).map(clip, traced=True).with_options(on(backend))

    np.testing.assert_array_equal(made.image, frames[:, :, ::-1])
    np.testing.assert_array_equal(
        made.boxes, np.stack([80 - boxes[..., 2], boxes[..., 1], 80 - boxes[..., 0], boxes[..., 3]], -1)
    )


def python(s: Sample) -> Sample:
    if len(s.boxes) < 1:
        return s
    return ops.random_flip_left_right(s)


def test_python_functions_threads_and_processes_take_samples(tmp_path: Path) -> None:
    chain = samples().map(python, traced=False)
    processes = samples().map(python, traced=False, workers="process", num_parallel_calls=1)

    for one, other in zip(chain.iterator(epoch=0), processes.iterator(epoch=0), strict=True):
        assert_same(one, other)
        check(one, True)
    chain.save(str(tmp_path / "saved"))
    for one, other in zip(chain.iterator(epoch=0), Dataset.load(str(tmp_path / "saved")), strict=True):
        np.testing.assert_array_equal(one.labels, other.labels)


def test_a_sample_is_a_structure_that_can_be_pickled_and_compared_by_its_spec() -> None:
    s = painted(np.random.default_rng(2), boxes=1)

    assert_same(pickle.loads(pickle.dumps(s)), s)
    leaves, nesting = flatten(s)
    assert nesting.kind is Sample and len(leaves) == 6
    assert nesting.leaf_names()[:4] == [".image", ".boxes", ".labels", ".keypoints"]
    spec = Dataset.from_tensors(Sample(np.zeros((2, 2, 3), np.uint8), [[0, 0, 1, 1]])).element_spec
    assert spec == Sample(TensorSpec((2, 2, 3), "uint8"), TensorSpec((1, 4), "float32"))
    assert gp.ops.Sample is Sample


def test_boxes_of_integers_and_lists_become_float32() -> None:
    made = Sample(np.zeros((9, 9, 1)), [[1, 2, 3, 4]], keypoints=np.array([[1, 2]]), masks=[np.zeros((9, 9, 1))])
    traced = Dataset.from_tensors((np.zeros((9, 9, 1), np.uint8), np.array([[1, 2, 3, 4]]))).map(Sample)

    assert made.boxes.dtype == made.keypoints.dtype == np.float32 and isinstance(made.masks, tuple)
    assert next(iter(traced)).boxes.dtype == np.float32


@dataclass(frozen=True, slots=True)
class Mirrored(Composite):
    """An op that says nothing of positions."""

    def row(self, image: int = 0) -> Row:
        return ((Blind(), ()),)


@dataclass(frozen=True, slots=True)
class Blind(Op):
    """Its part."""

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return xs[0]

    def reference(self, x: Any) -> Any:
        return x[:, ::-1]


def test_an_op_without_a_motion_takes_samples_without_boxes_only() -> None:
    s = painted(np.random.default_rng(1))

    made = call(Mirrored(images=4), replace(s, boxes=None, labels=None, keypoints=None))

    np.testing.assert_array_equal(made.masks[2], s.masks[2][:, ::-1])
    with pytest.raises(PlanTypeError, match="got a Sample with boxes and keypoints, which it cannot move"):
        call(Mirrored(images=4), s)


# ---- completeness


def test_every_op_that_moves_positions_is_tested_here() -> None:
    parts = [(kind, kind.part if issubclass(kind, Warping) else kind) for kind in CATALOGUE]
    moving = {kind for kind, part in parts if part.motion is not Op.motion}
    derived = {"corner_crop", "resize_area"}  # of five_crop and of resize
    names = {re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind.__name__).lower() for kind in moving}

    assert names - derived == {move.partition(",")[0] for move in MOVES} - CHOICES - {"colours"}


CHOICES = {"random_apply", "random_choice", "random_order"}


@pytest.mark.parametrize("name", CALLS)
def test_every_op_moves_a_sample_or_refuses_it(name: str) -> None:
    sample = painted(np.random.default_rng(1), size=(40, 50))
    try:
        made = CALLS[name](sample)
    except (PlanTypeError, TypeError) as error:
        assert re.search("Sample|'Sample' object", str(error))
        return
    assert isinstance(made, Sample)
    assert made.boxes.shape == (2, 4) and made.keypoints.shape == (4, 3)
    if name not in {move.partition(",")[0] for move in MOVES} | {"transpose", 'resize, method="nearest"'}:
        assert_same(replace(made, image=sample.image), sample)


def test_tensors_are_held_by_samples_too() -> None:
    torch = pytest.importorskip("torch")

    batch = next(iter(samples().map(augment_alike).batch(2).with_options(on("numpy")).as_torch()))

    assert isinstance(batch, Sample)
    assert torch.is_tensor(batch.boxes) and batch.boxes.shape == (2, 2, 4) and torch.is_tensor(batch.masks[2])


BLOCKS, PROGRAMS = 5, 100
"""Together 500 programs of up to 4 ops."""


def through(moves: list[Move], sample: Any, clip: bool) -> Any:
    """A Sample after some ops. Boxes that are not clipped keep what a crop cut off, and no pad brings back."""
    for move in moves:
        sample = move.call(sample)
        sample = ops.clip_boxes(sample) if clip else sample
    return sample


@pytest.mark.parametrize("block", range(BLOCKS))
def test_what_was_drawn_stays_in_its_box_and_at_its_keypoint(block: int) -> None:
    compared, used = 0, Counter[str]()
    for number in range(PROGRAMS):
        rng = np.random.default_rng([block, number])
        moves, sample = program(rng, int(rng.integers(1, 5))), drawn(rng)
        used.update(move.name for move in moves)
        try:
            compared += check_image(through(moves, sample, True), all(move.exact for move in moves))
            if number % 4 == 0:
                check_image(through(moves, sample, False), False, False)
        except AssertionError as error:
            raise AssertionError(f"program {block}, {number}: {', '.join(move.name for move in moves)}") from error
    assert compared > PROGRAMS
    assert len(used) > 20


def test_programs_have_every_op_that_can_be_seen_in_them() -> None:
    names = {move.name for number in range(300) for move in program(np.random.default_rng(number), 4)}

    assert names == {name for name, move in MOVES.items() if move.drawn}
