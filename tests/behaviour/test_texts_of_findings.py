"""What findings of Dataset.check() tell to write instead, where that depends on what was written."""

from __future__ import annotations

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, ops
from gpupipe.transform import machine


@pytest.fixture(autouse=True)
def _of_the_plan_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU adds to the findings is told in test_batches_stay.py."""
    monkeypatch.setattr(machine, "installed", lambda: (0, None))


IMAGES = np.zeros((8, 6, 6, 3), np.uint8)
CHW = np.zeros((8, 3, 6, 7), np.uint8)


def _images() -> Dataset:
    return Dataset.from_tensor_slices(IMAGES)


def _flipped(image: object) -> object:
    return ops.random_flip_left_right(image)


def _finding(chain: Dataset) -> str:
    (finding,) = chain.check()
    assert finding.line.startswith(f"{__file__}:")
    return finding.text


def test_a_map_with_a_spec_is_told_to_drop_it() -> None:
    text = _finding(_images().map(_flipped, spec=gp.TensorSpec((6, 6, 3), "uint8"), num_parallel_calls=2).prefetch(1))

    assert "never on a GPU: drop its spec=, which only Python functions have; let ops.py_function" in text


def test_a_transpose_of_what_is_chw_already_is_told_to_be_dropped() -> None:
    text = _finding(Dataset.from_tensor_slices(CHW).map(lambda x: ops.transpose(x, "CHW")).prefetch(1))

    assert text.endswith("looks like {CHW}; drop it, or keep arrays as {HWC}")


def test_uneven_shards_are_told_how_many_steps_they_make_and_what_to_write() -> None:
    text = _finding(Dataset.range(255).shard(2, 1).batch(128, True))

    assert "the shards of 255 elements are uneven: the first one makes 1 steps and the last one 0" in text
    assert text.endswith("use shard(2, 1, even='drop') or even='wrap'")


def test_a_zip_of_random_ops_is_told_that_equal_seeds_do_not_help() -> None:
    masks = Dataset.from_tensor_slices(IMAGES[..., :1])
    seeded = tuple(x.map(lambda i: ops.random_crop(i, (3, 3), seed=7)) for x in (_images(), masks))

    assert "which draw independently, although their seeds are equal: if the parts" in _finding(
        Dataset.zip(seeded).prefetch(1)
    )
