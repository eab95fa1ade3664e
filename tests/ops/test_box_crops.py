"""Crops that heed boxes: sample_distorted_bounding_box, and those of SSD and DETR, by hand and beside the originals."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, ops
from gpupipe.errors import DataError, PlanError, PlanTypeError, ShapeError, SpecError
from gpupipe.ops import Sample
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.ops.random_iou_crop import RandomIouCrop
from gpupipe.ops.random_zoom_out import RandomZoomOut
from gpupipe.ops.sample_distorted_bounding_box import SampleDistortedBoundingBox
from gpupipe.random import BatchRng
from gpupipe.transform import machine
from tests.ops.originals import chw, hwc, original, photograph, torchvision
from tests.ops.refusals import refused

WHOLE = np.array([[[0, 0, 1, 1]]], np.float32)
BACKENDS = ["numpy"] + ["dali"] * machine.has_dali()

Windows = Any


def floats(values: Any) -> Any:
    """An array of float32."""
    return np.array(values, np.float32)


def integers(values: Any) -> Any:
    """An array of int32."""
    return np.array(values, np.int32)


def drawn(op: SampleDistortedBoundingBox, size: list[int], boxes: Any, count: int) -> Windows:
    """(top, left, bottom, right) for `count` elements."""
    (u,) = op.draw(BatchRng(1, 0, np.arange(count, dtype=np.uint64), 5), np.zeros((count, 2), np.int32))
    out = []
    for row in u:
        begin, shape, _ = op.reference(np.array(size, np.int32), np.array(boxes, np.float32), row)
        out.append((*begin[:2], *(begin + shape)[:2]))
    return np.array(out)


def of_tensorflow(tf: Any, size: list[int], boxes: Any, count: int, **options: Any) -> Windows:
    def one(seed: Any) -> Any:
        begin, shape, _ = tf.image.stateless_sample_distorted_bounding_box(
            tf.constant(size), tf.constant(boxes, tf.float32), tf.stack([seed, 7]), **options
        )
        return tf.concat([begin[:2], (begin + shape)[:2]], 0)

    return tf.map_fn(one, tf.range(count)).numpy()


def rows(*numbers: float) -> Any:
    """Uniform numbers for one attempt."""
    return np.array([numbers])


def test_the_law_by_hand() -> None:
    op = SampleDistortedBoundingBox(0.1, (0.5, 1.5), (0.25, 1.0), 1)

    # ratio 0.5 + 0.5 = 1; heights rint(sqrt(0.25 * 10000)) = 50 to 100 (width 100 fits); 50 + floor(0.5 * 51) = 75;
    # width 75; offsets floor(0.5 * 25) = 12 and floor(0.25 * 25) = 6
    begin, size, box = op.reference(np.array([100, 100, 3], np.int32), WHOLE, rows(0.5, 0.5, 0.5, 0.25))

    assert begin.tolist() == [12, 6, 0]
    assert size.tolist() == [75, 75, -1]
    np.testing.assert_allclose(box, floats([[[0.12, 0.06, 0.87, 0.81]]]))
    assert (begin.dtype, size.dtype, box.dtype) == (np.int32, np.int32, np.float32)


def test_without_a_window_that_fits_it_is_the_whole_image() -> None:
    op = SampleDistortedBoundingBox(1.0, (1.0, 1.0), (0.1, 0.2), 5)

    assert drawn(op, [60, 40, 3], WHOLE, 20).tolist() == [[0, 0, 60, 40]] * 20


def test_windows_keep_to_their_ranges_and_never_take_the_last_offset() -> None:
    windows = drawn(SampleDistortedBoundingBox(0.0, (0.5, 2.0), (0.2, 0.5)), [50, 70, 3], WHOLE, 1000)
    h, w = (windows[:, 2:] - windows[:, :2]).T

    assert (h * w >= 0.2 * 3500).all()
    assert (h * w <= 0.5 * 3500).all()
    assert (np.abs(w / h - 1.25) <= 0.75 + 1 / h).all()  # the width is rounded
    assert ((windows[:, 2] < 50) | (h == 50)).all()
    assert ((windows[:, 3] < 70) | (w == 70)).all()
    assert (windows[:, :2] >= 0).all()


@pytest.mark.parametrize(
    ("size", "boxes", "options"),
    [
        pytest.param([60, 90, 3], WHOLE.tolist(), {}, id="whole"),
        pytest.param(
            [40, 40, 3],
            [[[0.1, 0.2, 0.6, 0.7]]],
            {"min_object_covered": 0.6, "aspect_ratio_range": (0.5, 2.0), "area_range": (0.1, 0.9)},
            id="box",
        ),
    ],
)
def test_windows_are_distributed_as_tensorflows(size: list[int], boxes: Any, options: Any, tf: Any) -> None:
    count = 2000
    theirs = of_tensorflow(tf, size, boxes, count, **options)

    ours = drawn(SampleDistortedBoundingBox(**options), size, boxes, count)

    # Two samples of 2000: 5 standard errors of the difference of their means, and Kolmogorov-Smirnov at 1e-5.
    for a, b in zip(ours.T, theirs.T, strict=True):
        bound = 5 * np.sqrt((a.var() + b.var()) / count)
        assert abs(a.mean() - b.mean()) <= bound
        grid = np.arange(max(a.max(), b.max()) + 1)[:, None]
        assert np.abs((a <= grid).mean(axis=1) - (b <= grid).mean(axis=1)).max() <= 2.47 * np.sqrt(2 / count)


def test_a_box_is_rounded_down_to_pixels_as_in_tensorflow(tf: Any) -> None:
    boxes, options = [[[0.15, 0.15, 0.95, 0.95]]], {"min_object_covered": 1.0, "area_range": (0.3, 1.0)}

    ours = drawn(SampleDistortedBoundingBox(**options), [10, 10, 3], boxes, 500)  # type: ignore[arg-type]

    # 1.5 to 9.5 is row 1 to row 9: windows that begin at 1 and end at 9 cover it
    assert ours.max(axis=0)[:2].tolist() == [1, 1]
    assert ours.min(axis=0)[2:].tolist() == [9, 9]
    theirs = of_tensorflow(tf, [10, 10, 3], boxes, 500, **options)
    assert {tuple(row) for row in theirs.tolist()} == {tuple(row) for row in ours.tolist()}


def test_no_box_can_mean_the_whole_image() -> None:
    op = SampleDistortedBoundingBox(0.99, area_range=(0.1, 0.5), use_image_if_no_bounding_boxes=True)

    assert drawn(op, [9, 7, 3], np.zeros((1, 0, 4)), 3).tolist() == [[0, 0, 9, 7]] * 3


def distorted(boxes: Any, **settings: Any) -> Any:
    return ops.sample_distorted_bounding_box((10, 10, 3), boxes, **settings)


test_mistakes_and_bad_boxes_are_errors = refused(
    (DataError, "needs a bounding box, got none", lambda: distorted(WHOLE[:, :0])),
    (DataError, "coordinates from 0 to 1, got 1.5", lambda: distorted(WHOLE * 1.5)),
    (DataError, "coordinates from 0 to 1, got nan", lambda: distorted(floats([[[0, 0, np.nan, 1]]]))),
    (SpecError, "area_range from small to large", lambda: distorted(WHOLE, area_range=(0.5, 0.1))),
    (SpecError, "needs image_size as integers", lambda: ops.sample_distorted_bounding_box(floats([10, 10, 3]), WHOLE)),
    (SpecError, "needs bounding_boxes of shape", lambda: distorted(WHOLE[..., :3])),
)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_training_crop_decodes_only_the_window(backend: Any) -> None:
    sizes = [(40, 60), (55, 33), (70, 70)]
    files = [encoded(picture(h, w), quality=90) for h, w in sizes]
    boxes = [floats([[[0.1, 0.1, 0.9, 0.9]]])] * 3

    def crop(data: Any, box: Any) -> Any:
        begin, size, window = ops.sample_distorted_bounding_box(ops.extract_jpeg_shape(data), box)
        image = ops.decode_and_crop_jpeg(data, (begin[0], begin[1], size[0], size[1]), channels=3)
        return image, begin, size, window

    ds = gp.Dataset.from_tensor_slices((files, np.stack(boxes))).map(crop)
    got = list(ds.with_options(gp.Options(device="cpu", backend=backend)))

    assert "decode_crop" in str(ds.batch(1).explain())
    for (image, begin, size, window), data, (height, width) in zip(got, files, sizes, strict=True):
        (top, left, _), (h, w, _) = begin.tolist(), size.tolist()
        np.testing.assert_array_equal(image, ops.decode_jpeg(data, 3)[top : top + h, left : left + w])
        np.testing.assert_allclose(
            window.ravel(), [top / height, left / width, (top + h) / height, (left + w) / width], rtol=1e-6
        )


def test_a_size_without_a_sign_means_all_channels_by_the_largest_number() -> None:
    x = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    size = np.array([[2, 2, 255], [2, 2, 254]], np.uint8)
    ds = gp.Dataset.from_tensor_slices((x, np.zeros((2, 3), np.uint8), size)).map(ops.slice)

    with iter(ds.with_options(gp.Options(device="cpu", backend="numpy"))) as items:
        np.testing.assert_array_equal(next(items), x[0, :2, :2])
        with pytest.raises(ShapeError, match="got 0 and 254"):
            next(items)


def test_slice_is_tensorflows(tf: Any) -> None:
    x = np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8)

    for begin, size in (((1, 2, 0), (3, 4, 3)), ((0, 5, 0), (-1, -1, -1)), ((6, 0, 0), (1, 9, -1))):
        np.testing.assert_array_equal(ops.slice(x, begin, size), tf.slice(x, begin, size).numpy())


BOXES = np.array([[10, 10, 40, 50], [50, 20, 90, 60], [70, 5, 80, 12]], np.float32)


def located(height: int = 80, width: int = 100) -> Sample:
    """An image whose pixels say where they are."""
    rows, columns = np.mgrid[:height, :width].astype(np.uint8)
    return Sample(np.stack([rows, columns, rows], axis=2), BOXES, np.arange(3))


def window_of(image: Any) -> tuple[int, int, int, int]:
    """First row and column, height and width of the part of a `located`."""
    return int(image[0, 0, 0]), int(image[0, 0, 1]), image.shape[0], image.shape[1]


def iou(box: Any, other: Any) -> float:
    low, high = np.maximum(box[:2], other[:2]), np.minimum(box[2:], other[2:])
    shared = float(np.clip(high - low, 0, None).prod())
    return shared / (float((box[2:] - box[:2]).prod()) + float((other[2:] - other[:2]).prod()) - shared)


@pytest.mark.parametrize("overlap", [0.0, 0.1, 0.3, 0.5, 0.7])
def test_the_window_overlaps_with_a_box_whose_centre_it_has(overlap: float) -> None:
    boxes = np.array([[5, 5, 70, 75]], np.float32) if overlap > 0.3 else BOXES
    for seed in range(60):
        s = Sample(located().image, boxes, np.arange(len(boxes)))
        made = ops.random_iou_crop(s, sampler_options=[overlap], trials=200, seed=seed)
        y, x, h, w = window_of(made.image)
        if (h, w) == (80, 100):
            continue
        window = np.array([x, y, x + w, y + h], np.float32)
        centres = (boxes[:, :2] + boxes[:, 2:]) / 2
        inside = ((centres > window[:2]) & (centres < window[2:])).all(axis=1)
        assert max(iou(box, window) for box in boxes[inside]) >= overlap - 1e-6
        assert made.labels.tolist() == np.flatnonzero(inside).tolist()
        expected = np.clip(boxes[inside] - [x, y, x, y], 0, [w, h, w, h])
        np.testing.assert_allclose(made.boxes, expected)
        assert 0.5 <= w / h <= 2 and h >= int(80 * 0.3) and w >= int(100 * 0.3)


def test_an_option_of_1_leaves_the_image_as_it_is() -> None:
    made = ops.random_iou_crop(located(), sampler_options=[1.0], seed=1)

    assert window_of(made.image) == (0, 0, 80, 100)
    np.testing.assert_array_equal(made.boxes, BOXES)


def test_a_window_of_half_of_each_side_lies_where_its_numbers_say() -> None:
    op, box, size = (
        RandomIouCrop((0.5, 0.5), options=(0.0,), trials=1),
        np.array([[0, 0, 100, 80]], np.float32),
        np.array([80, 100]),
    )
    for word in range(10):
        u = BatchRng(word, 7, np.zeros(1, np.uint64)).uniform(5)[0]  # the overlap, the sides, and the two places

        got = op.reference(box, np.array([word, 7], np.uint64), size)

        assert got.tolist() == [int(40 * u[4]), int(50 * u[3]), 40, 50]


class Numbers:
    """What `RandomIouCrop` draws from two words, in the place of torch's random functions."""

    def __init__(self, torch: Any, words: Any, size: tuple[int, int], crop: RandomIouCrop) -> None:
        self._torch, self._size, self._crop = torch, size, crop
        self._rng = BatchRng(int(words[0]), int(words[1]), np.zeros(1, np.uint64))
        self._trials: Iterator[Any] = iter(())
        self._place: Any = None

    def randint(self, low: int, high: int, size: Any) -> Any:
        u = self._rng.uniform(1 + 4 * self._crop.trials)[0]
        self._trials, self._place = iter(u[1:].reshape(-1, 4)), None
        return self._torch.tensor([int(u[0] * high)])

    def rand(self, _: int) -> Any:
        """Sides of a window, or, if their ratio is one that is wanted, then its place."""
        if self._place is not None:
            numbers, self._place = self._place, None
            return self._torch.tensor(numbers)
        trial = next(self._trials)
        (low, high), (least, most) = self._crop.scale, self._crop.ratio
        h, w = (
            int(side * (low + number * (high - low))) for side, number in zip(self._size, trial[1::-1], strict=True)
        )
        self._place = trial[2:] if least <= w / h <= most else None
        return self._torch.tensor(trial[:2])


def test_sets_of_boxes_with_20_draws_each_are_cropped_as_by_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    torch, v2 = original("torch"), torchvision().v2
    tv_tensors, whole = importlib.import_module("torchvision.tv_tensors"), 0
    for number in range(5):
        rng = np.random.default_rng(number)
        height, width = (int(side) for side in rng.integers(60, 300, 2))
        corner = rng.uniform(0, 0.7, (1 + number % 5, 2)) * (width, height)
        boxes = np.concatenate([corner, corner + rng.uniform(0.1, 0.3, corner.shape) * (width, height)], 1)
        boxes = boxes.astype(np.float32)
        inputs = [
            tv_tensors.Image(torch.zeros(3, height, width, dtype=torch.uint8)),
            tv_tensors.BoundingBoxes(torch.tensor(boxes), format="XYXY", canvas_size=(height, width)),
        ]
        for words in rng.integers(0, 1 << 32, (20, 2), dtype=np.uint64):
            numbers = Numbers(torch, words, (height, width), RandomIouCrop())
            monkeypatch.setattr(torch, "randint", numbers.randint)
            monkeypatch.setattr(torch, "rand", numbers.rand)
            expected = v2.RandomIoUCrop().make_params(inputs)

            got = RandomIouCrop().reference(boxes, words, np.array([height, width], np.int32)).tolist()

            whole += not expected
            assert got == [expected.get(key, side) for key, side in zip(
                ("top", "left", "height", "width"), (0, 0, height, width), strict=True
            )]  # fmt: skip
    assert 5 < whole < 50


def test_the_canvas_of_a_zoom_out_holds_the_image() -> None:
    sizes, factors = set(), []
    for seed in range(200):
        s = ops.random_zoom_out(located(10, 20), fill=7, p=0.8, seed=seed)
        h, w = s.image.shape[:2]
        x, y = (s.boxes[0, :2] - BOXES[0, :2]).astype(int)
        sizes.add((h, w))
        factors.append(w / 20)
        assert 10 <= h <= 40 and abs(h * 2 - w) <= 2
        assert 0 <= x <= w - 20 and 0 <= y <= h - 10
        np.testing.assert_array_equal(s.image[y : y + 10, x : x + 20], located(10, 20).image)
        assert (s.image == 7).all(axis=2).sum() == h * w - 200 + int((located(10, 20).image == 7).all(axis=2).sum())
    assert len(sizes) > 20
    assert np.mean(np.array(factors) == 1) == pytest.approx(0.2, abs=0.09)


def test_photographs_with_several_canvases_each_are_torchvisions(monkeypatch: pytest.MonkeyPatch) -> None:
    torch, v2 = original("torch"), torchvision().v2
    for number in range(0, 20, 5):
        image = photograph(number)[: 60 + number, : 90 - 2 * number]
        hw = np.tile(np.array(image.shape[:2], np.int32), (6, 1))
        bounds, fill = (1.0 + number / 20, 3.0 + number / 20), float(5 * number)
        op = RandomZoomOut(bounds, 1.0, ((fill,),))
        keys = np.arange(6, dtype=np.uint64) + np.uint64(6 * number)
        u, params = BatchRng(1, 0, keys, 5).uniform(4), op.draw(BatchRng(1, 0, keys, 5), hw)
        for draw in range(6):
            drawn = iter((torch.tensor(u[draw, 1:2]), torch.tensor(u[draw, 2:])))  # the factor; the places
            monkeypatch.setattr(torch, "rand", lambda _, drawn=drawn: next(drawn))
            transform = v2.RandomZoomOut(fill, bounds, 1.0)
            expected = hwc(transform.transform(chw(image), transform.make_params([chw(image)])))

            np.testing.assert_array_equal(op.reference(image, *(param[draw] for param in params)), expected)


def test_the_window_of_detr_has_sides_between_its_bounds() -> None:
    sides = set()
    for seed in range(200):
        made = ops.random_size_crop(located().image, 30, 90, seed=seed)
        y, x, h, w = window_of(made)
        np.testing.assert_array_equal(made, located().image[y : y + h, x : x + w])
        assert 30 <= h <= 80 and 30 <= w <= 90 and y + h <= 80 and x + w <= 100
        sides |= {("h", h), ("w", w)}
    assert {("h", 30), ("h", 80), ("w", 30), ("w", 90)} <= sides


def test_the_window_of_detr_is_that_of_a_resized_image() -> None:
    """384 to 600 of an image whose shorter side is 400, 500 or 600: shares of 0.64 to 1 of 80 pixels."""
    heights = [
        ops.random_size_crop(located().image, 384, 600, (400, 500, 600), seed=seed).shape[0] for seed in range(300)
    ]
    assert min(heights) in (51, 52) and max(heights) == 80
    same = [ops.random_size_crop(located().image, 384, 600, (400,), 0.0, seed=seed).shape for seed in range(20)]
    assert set(same) == {(80, 100, 3)}
    assert ops.random_size_crop(located(5, 7).image, 10, 20).shape == (5, 7, 3)


test_errors = refused(
    (SpecError, "needs a window inside the image", lambda: ops.slice(located().image, (78, 0, 0), (3, -1, -1))),
    (SpecError, "keeps all channels", lambda: ops.slice(located().image, (0, 0, 1), (3, -1, -1))),
    (SpecError, "random_iou_crop needs min_scale up to max_scale", lambda: ops.random_iou_crop(located(), 0.5, 0.3)),
    (SpecError, "sampler_options, got none", lambda: ops.random_iou_crop(located(), sampler_options=[])),
    (SpecError, r"side_range from 1 to 50, got 0\.5", lambda: ops.random_zoom_out(located(), side_range=(0.5, 2))),
    (SpecError, "needs side_range from small to large", lambda: ops.random_zoom_out(located(), side_range=(3, 2))),
    (SpecError, "needs min_size up to max_size, got 9 and 3", lambda: ops.random_size_crop(located(), 9, 3)),
    (PlanTypeError, "sampler_options as a list of numbers", lambda: ops.random_iou_crop(located(), sampler_options=1)),  # type: ignore[arg-type]
    (PlanTypeError, r"list of numbers, got array\(4\)", lambda: ops.random_size_crop(located(), 9, 30, np.array(4))),  # type: ignore[arg-type]
)


def traced(function: Any) -> Any:
    return Dataset.from_tensors((located(), 1)).map(function, traced=True)


HERE = r".*, got a traced (one|value), at .*test_box_crops\.py:\d+"
PLAIN = "needs a plain value for"

test_a_setting_that_may_not_depend_on_the_element_is_named = refused(
    (PlanError, f"{PLAIN} min_scale{HERE}", lambda: traced(lambda s, n: ops.random_iou_crop(s, n))),
    (PlanError, f"{PLAIN} max_aspect{HERE}", lambda: traced(lambda s, n: ops.random_iou_crop(s, max_aspect_ratio=n))),
    (PlanError, f"{PLAIN} sampler_{HERE}", lambda: traced(lambda s, n: ops.random_iou_crop(s, 0.3, 1, 0.5, 2, [n]))),
    (PlanError, f"as a list{HERE}", lambda: traced(lambda s, n: ops.random_iou_crop(s, sampler_options=n))),
    (PlanError, f"{PLAIN} trials{HERE}", lambda: traced(lambda s, n: ops.random_iou_crop(s, trials=n))),
    (PlanError, f"{PLAIN} min_size{HERE}", lambda: traced(lambda s, n: ops.random_size_crop(s, n, 30))),
    (PlanError, f"{PLAIN} max_size{HERE}", lambda: traced(lambda s, n: ops.random_size_crop(s, 3, n))),
    (PlanError, f"{PLAIN} shortest{HERE}", lambda: traced(lambda s, n: ops.random_size_crop(s, 3, 9, (4, n)))),
    (PlanError, f"{PLAIN} side_range{HERE}", lambda: traced(lambda s, n: ops.random_zoom_out(s, side_range=(1, n)))),
)


def test_lengths_of_the_shorter_side_may_be_a_range() -> None:
    one, other = (
        ops.random_size_crop(located(), 384, 600, way, seed=3) for way in (range(400, 601, 100), (400, 500, 600))
    )

    np.testing.assert_array_equal(one.image, other.image)
