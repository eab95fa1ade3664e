"""sample_distorted_bounding_box: its law step by step, its distribution beside TensorFlow's, and the crop it is for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import DataError, ShapeError, SpecError
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.ops.sample_distorted_bounding_box import SampleDistortedBoundingBox
from gpupipe.random import BatchRng
from gpupipe.transform import machine

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


@pytest.mark.parametrize(
    ("boxes", "reason"),
    [
        (np.zeros((1, 0, 4), np.float32), "needs a bounding box, got none"),
        (floats([[[0, 0, 1.5, 1]]]), "coordinates from 0 to 1, got 1.5"),
        (floats([[[0, 0, np.nan, 1]]]), "coordinates from 0 to 1, got nan"),
    ],
)
def test_bad_boxes_are_errors_of_their_element(boxes: Any, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        ops.sample_distorted_bounding_box((10, 10, 3), boxes)


def test_no_box_can_mean_the_whole_image() -> None:
    op = SampleDistortedBoundingBox(0.99, area_range=(0.1, 0.5), use_image_if_no_bounding_boxes=True)

    assert drawn(op, [9, 7, 3], np.zeros((1, 0, 4)), 3).tolist() == [[0, 0, 9, 7]] * 3


def test_mistakes_are_plan_errors() -> None:
    with pytest.raises(SpecError, match="area_range from small to large"):
        ops.sample_distorted_bounding_box((10, 10, 3), WHOLE, area_range=(0.5, 0.1))
    with pytest.raises(SpecError, match="needs image_size as integers"):
        ops.sample_distorted_bounding_box(floats([10, 10, 3]), WHOLE)
    with pytest.raises(SpecError, match="needs bounding_boxes of shape"):
        ops.sample_distorted_bounding_box((10, 10, 3), np.zeros((1, 2, 3), np.float32))


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


@pytest.mark.parametrize("backend", BACKENDS)
def test_channels_that_a_traced_slice_leaves_out_are_errors_of_their_element(backend: Any) -> None:
    x = np.random.default_rng(0).integers(0, 256, (5, 9, 8, 3), dtype=np.uint8)
    begin = np.array([[1, 2, 0], [1, 2, 1], [1, 2, 0], [1, 2, 0], [0, 0, 0]])
    size = np.array([[3, -1, -1], [3, -1, -1], [3, -1, 2], [3, -1, 3], [-1, -1, -1]])
    found: list[Any] = []
    ds = gp.Dataset.from_tensor_slices((x, begin, size)).map(ops.slice)

    with iter(ds.with_options(gp.Options(device="cpu", backend=backend))) as items:
        for _ in range(len(x)):
            try:
                found.append(next(items))
            except ShapeError as error:
                found.append(f"{error.offset}: {error.reason.rpartition(', ')[2]}")

    assert found[1:3] == ["1: got 1 and -1", "2: got 0 and 2"]
    np.testing.assert_array_equal(found[0], x[0, 1:4, 2:])
    np.testing.assert_array_equal(found[3], x[3, 1:4, 2:])
    np.testing.assert_array_equal(found[4], x[4])


def test_a_size_without_a_sign_means_all_channels_by_the_largest_number() -> None:
    x = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    size = np.array([[2, 2, 255], [2, 2, 254]], np.uint8)
    ds = gp.Dataset.from_tensor_slices((x, np.zeros((2, 3), np.uint8), size)).map(ops.slice)

    with iter(ds.with_options(gp.Options(device="cpu", backend="numpy"))) as items:
        np.testing.assert_array_equal(next(items), x[0, :2, :2])
        with pytest.raises(ShapeError, match="got 0 and 254"):
            next(items)


@pytest.mark.parametrize("backend", BACKENDS)
def test_behind_batch_every_row_has_its_own_window(backend: Any) -> None:
    x = np.random.default_rng(0).integers(0, 256, (6, 20, 30, 3), dtype=np.uint8)

    def crop(image: Any, size: Any, box: Any) -> Any:
        begin, extent, _ = ops.sample_distorted_bounding_box(size, box)
        return ops.resize(ops.slice(image, begin, extent), (8, 8))

    sizes, boxes = np.tile(np.array([20, 30, 3], np.int32), (6, 1)), np.tile(WHOLE, (6, 1, 1))
    ds = gp.Dataset.from_tensor_slices((x, sizes, boxes)).with_options(gp.Options(device="cpu", backend=backend))
    (after,) = ds.batch(6).map(crop)
    (before,) = ds.map(crop).batch(6)

    np.testing.assert_array_equal(after, before)
    assert len({row.tobytes() for row in after}) == 6


def test_slice_is_tensorflows(tf: Any) -> None:
    x = np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8)

    for begin, size in (((1, 2, 0), (3, 4, 3)), ((0, 5, 0), (-1, -1, -1)), ((6, 0, 0), (1, 9, -1))):
        np.testing.assert_array_equal(ops.slice(x, begin, size), tf.slice(x, begin, size).numpy())
    with pytest.raises(SpecError, match="needs a window inside the image"):
        ops.slice(x, (5, 0, 0), (3, -1, -1))
    with pytest.raises(SpecError, match="keeps all channels"):
        ops.slice(x, (0, 0, 1), (3, -1, -1))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_host_op_that_fails_for_one_element_leaves_out_that_element_alone(backend: Any) -> None:
    images, boxes = np.zeros((6, 20, 30, 3), np.uint8), np.full((6, 1, 4), 0.5, np.float32)
    boxes[:, :, 2:] = 1
    boxes[4, 0, 1] = 7

    def window(image: Any, box: Any) -> Any:
        return ops.flip_left_right(image), ops.sample_distorted_bounding_box((20, 30, 3), box)[1], box

    chain = gp.Dataset.from_tensor_slices((images, boxes)).map(window, traced=True).batch(3)
    settings = gp.Options(device="cpu", backend=backend, on_error="skip")

    assert [len(batch[2]) for batch in chain.with_options(settings)] == [3, 2]
    with pytest.raises(gp.DataError, match=r"index 4: sample_distorted_bounding_box: needs bounding box coordinates"):
        list(chain.with_options(gp.Options(device="cpu", backend=backend)))
