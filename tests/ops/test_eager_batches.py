"""Ops on arrays outside of a graph: rows of a batch draw on their own, and an array {CHW} is no image {HWC}."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import ShapeError, SpecError

BATCH = np.random.default_rng(0).integers(0, 256, (64, 9, 11, 3), np.uint8)
CHW = np.zeros((3, 40, 60), np.uint8)


def flags(batch: Any) -> Any:
    return ops.random_flip_left_right(batch, seed=7, return_params=True)[1]


def test_rows_of_a_batch_draw_on_their_own_also_with_one_seed() -> None:
    """One image of 64 rows has the draw of its seed; 64 flags are alike by chance once in 2**63."""
    assert set(flags(BATCH).tolist()) == {False, True}
    np.testing.assert_array_equal(flags(BATCH), flags(BATCH))
    noisy = ops.gaussian_noise(np.zeros((3, 8, 8, 1), np.float32), seed=3)
    assert not np.array_equal(noisy[0], noisy[1])
    crops = ops.random_crop(np.broadcast_to(BATCH[0], BATCH.shape), (3, 3), seed=1)
    assert len(np.unique(crops.reshape(64, -1), axis=0)) > 10


def test_so_do_those_in_a_python_map_and_other_epochs_differ() -> None:
    ds = gp.Dataset.from_tensor_slices(BATCH).batch(64).map(flags, traced=False)

    first, again, other = (next(ds.iterator(epoch=epoch)) for epoch in (0, 0, 1))

    assert set(first.tolist()) == {False, True}
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


ROWS = np.broadcast_to(BATCH[0], (20, *BATCH.shape[1:]))


def sample_of(batch: Any) -> ops.Sample:
    return ops.Sample(batch, np.tile(np.array([[1, 2, 4, 5]], np.float32), (len(batch), 1, 1)), masks=batch[..., :1])


def orders(x: Any) -> Any:
    return ops.random_order(
        [ops.flip_left_right, ops.flip_up_down, lambda x: ops.affine(x, translate=(1, 0))], x, seed=4
    )


DRAWN: dict[str, Callable[[Any], Any]] = {
    "random_flip_left_right": lambda x: ops.random_flip_left_right(x, seed=4),
    "random_crop": lambda x: ops.random_crop(x, (3, 3), seed=4),
    "random_resized_crop": lambda x: ops.random_resized_crop(x, (4, 4), seed=4),
    "random_rotation": lambda x: ops.random_rotation(x, 90, seed=4),
    "random_affine": lambda x: ops.random_affine(x, 90, seed=4),
    "random_perspective": lambda x: ops.random_perspective(x, seed=4),
    "random_transform": lambda x: ops.random_transform(x, 90, seed=4),
    "rand_augment": lambda x: ops.rand_augment(x, seed=4),
    "trivial_augment_wide": lambda x: ops.trivial_augment_wide(x, seed=4),
    "auto_augment": lambda x: ops.auto_augment(x, seed=4),
    "random_apply": lambda x: ops.random_apply(ops.flip_left_right, x, seed=4),
    "random_choice": lambda x: ops.random_choice([ops.flip_left_right, ops.flip_up_down], x, seed=4),
    "random_order": orders,
    "random_erasing": lambda x: ops.random_erasing(x, 1, seed=4),
    "color_jitter": lambda x: ops.color_jitter(x, 0.5, seed=4),
}


@pytest.mark.parametrize("name", DRAWN)
def test_rows_of_samples_and_of_tuples_draw_on_their_own_as_those_of_arrays(name: str) -> None:
    """In a Python map by the element, too."""
    calls: dict[str, Callable[[Any], Any]] = {
        "array": DRAWN[name],
        "tuple": lambda x: DRAWN[name]((x, x[..., :1]))[0],
        "sample": lambda x: DRAWN[name](replace(sample_of(x), boxes=None)).image,
    }
    if name == "random_crop":
        calls["with boxes"] = lambda x: DRAWN[name](sample_of(x)).image
    if "augment" in name or name in ("random_erasing", "color_jitter"):
        del calls["tuple"]  # they take one image

    for call in calls.values():
        made = call(ROWS)
        again, other = (
            next(gp.Dataset.from_tensor_slices(ROWS).batch(20).map(call, traced=False).iterator(epoch=epoch))
            for epoch in (0, 1)
        )

        assert len({row.tobytes() for row in made}) > 1 < len({row.tobytes() for row in again})
        np.testing.assert_array_equal(made, call(ROWS))
        assert not np.array_equal(again, other)
        if call is calls["array"]:
            of_arrays = made
        np.testing.assert_array_equal(made, of_arrays)


def test_rows_of_a_batch_choose_their_own_windows_by_boxes_and_grow_on_their_own() -> None:
    s = sample_of(ROWS)

    boxes = ops.random_zoom_out(s, p=0.5, side_range=(1.0, 1.0), seed=4).boxes
    rows = [ops.random_iou_crop(ops.Sample(ROWS[:1], s.boxes[:1]), seed=seed).image.shape for seed in range(20)]

    assert boxes.shape == (20, 1, 4) and len(set(rows)) > 1
    with pytest.raises(ShapeError, match="results of one shape for a batch"):
        ops.random_iou_crop(ops.Sample(ROWS, s.boxes), seed=4)
    with pytest.raises(ShapeError, match="results of one shape for a batch"):
        ops.random_size_crop(ROWS, 3, 8, seed=4)


BOXES = np.array([[-5, -5, 50, 30], [10, 10, 70, 50]], np.float32)


@pytest.mark.parametrize(
    "call",
    [
        lambda: ops.clip_boxes(ops.transpose(ops.Sample(np.zeros((40, 60, 3), np.uint8), BOXES), "CHW")),
        lambda: ops.convert_boxes(BOXES, "xyxy", "rel_xyxy", size=CHW),
        lambda: ops.random_crop(CHW, (2, 30)),
        lambda: ops.random_resized_crop(CHW, (8, 8)),
        lambda: ops.flip_left_right(CHW),
        lambda: ops.flip_up_down((CHW, CHW)),
        lambda: ops.flip_left_right(CHW[None]),
        lambda: ops.flip_left_right(ops.Sample(CHW, BOXES)),
        lambda: ops.five_crop(CHW, 2),
        lambda: ops.autocontrast(CHW),
        lambda: ops.equalize(CHW),
        lambda: ops.crop_and_resize(CHW, [[0, 0, 1, 1]], crop_size=(2, 2)),
    ],
    ids=(
        "clip_boxes convert_boxes random_crop random_resized_crop flip_left_right of_several of_a_batch of_a_sample "
        "five_crop autocontrast equalize crop_and_resize"
    ).split(),
)
def test_an_array_whose_channels_come_first_is_refused_where_sizes_matter(call: Callable[[], Any]) -> None:
    with pytest.raises(
        SpecError, match=r"^(?!corner).*needs an image {HWC}, got an array of shape \[3, 40, 60\].*before ops.transpose"
    ):
        call()


def test_small_images_and_many_channels_are_taken() -> None:
    assert ops.random_crop(np.zeros((3, 4, 9), np.uint8), (2, 2)).shape == (2, 2, 9)
    assert ops.random_crop(np.zeros((5, 40, 60), np.uint8), (2, 2)).shape == (2, 2, 60)
    for shape in ((3, 4, 9), (5, 40, 60), (3, 40, 3), (1, 40, 1), (8, 3, 40, 3)):
        assert ops.flip_left_right(np.zeros(shape, np.uint8)).shape == shape
    assert ops.transpose(CHW, "HWC").shape == (40, 60, 3)
    with pytest.raises(SpecError, match=r"transpose .* looks like {CHW}; drop it"):
        ops.transpose(CHW)


def test_ops_for_which_axes_do_not_matter_take_all_arrays() -> None:
    calls: list[Callable[[Any], Any]] = [ops.invert, ops.per_image_standardization, lambda x: ops.normalize(x, 9, 9)]
    for call in calls:
        assert call(CHW).shape == CHW.shape
    assert ops.convert_image_dtype(CHW, "float32").shape == ops.normalize(CHW, 1, 1, layout="CHW").shape == CHW.shape
    assert ops.normalize(CHW, (1, 2, 3), 1, layout="CHW").shape == CHW.shape
    assert ops.cast(CHW, "int16").shape == ops.clip(CHW, 0, 9).shape == CHW.shape


def test_set_seed_seeds_the_ops_that_are_called_on_arrays() -> None:
    image = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)

    def drawn(seed: int) -> list[bytes]:
        gp.set_seed(seed)
        return [ops.random_crop(image, (8, 8)).tobytes() for _ in range(6)]

    try:
        first = drawn(5)
        assert drawn(5) == first != drawn(6)
        assert len(set(first)) > 1  # each call draws anew
    finally:
        gp.set_seed(0)
