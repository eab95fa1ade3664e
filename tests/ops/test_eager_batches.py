"""Ops on arrays outside of a graph: rows of a batch draw on their own, and an array {CHW} is no image {HWC}."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import SpecError

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


BOXES = np.array([[-5, -5, 50, 30], [10, 10, 70, 50]], np.float32)


@pytest.mark.parametrize(
    "call",
    [
        lambda: ops.clip_boxes(ops.transpose(ops.Sample(np.zeros((40, 60, 3), np.uint8), BOXES), "CHW")),
        lambda: ops.convert_boxes(BOXES, "xyxy", "rel_xyxy", size=CHW),
        lambda: ops.random_crop(CHW, (2, 30)),
        lambda: ops.random_resized_crop(CHW, (8, 8)),
    ],
    ids=["clip_boxes", "convert_boxes", "random_crop", "random_resized_crop"],
)
def test_an_array_whose_channels_come_first_is_refused_where_sizes_matter(call: Callable[[], Any]) -> None:
    with pytest.raises(
        SpecError, match=r"needs an image {HWC}, got an array of shape \[3, 40, 60\].*before ops.transpose"
    ):
        call()


def test_small_images_and_many_channels_are_taken() -> None:
    assert ops.random_crop(np.zeros((3, 4, 9), np.uint8), (2, 2)).shape == (2, 2, 9)
    assert ops.random_crop(np.zeros((5, 40, 60), np.uint8), (2, 2)).shape == (2, 2, 60)
