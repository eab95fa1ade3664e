"""Flips, rot90 and transpose: what they do, how often, and what the optimizer may conclude."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.errors import PlanError, PlanTypeError, SpecError
from gpupipe.graph.trace import trace
from gpupipe.ops._shared.resize_flip import ResizeFlip
from gpupipe.ops._shared.reverse import Reverse
from gpupipe.ops._shared.samples import noise
from gpupipe.ops.random_flip_left_right import RandomFlipLeftRight
from gpupipe.ops.random_flip_up_down import RandomFlipUpDown
from gpupipe.ops.resize import Resize
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec, flatten
from gpupipe.transform import machine
from gpupipe.transform.machine import has_dali
from tests.ops.refusals import refused
from tests.ops.value_chains import on

X = np.arange(2 * 3, dtype=np.uint8).reshape(2, 3, 1)
IMAGE = TensorSpec((2, 3, 1), "uint8", "HWC")


def test_flips_do_what_their_names_say() -> None:
    assert ops.flip_left_right(X)[:, :, 0].tolist() == [[2, 1, 0], [5, 4, 3]]
    assert ops.flip_up_down(X)[:, :, 0].tolist() == [[3, 4, 5], [0, 1, 2]]
    np.testing.assert_array_equal(ops.random_flip_left_right(X, p=1), ops.flip_left_right(X))
    np.testing.assert_array_equal(ops.random_flip_up_down(X, p=1), ops.flip_up_down(X))
    np.testing.assert_array_equal(ops.random_flip_left_right(X, p=0), X)


def test_the_probability_may_differ_from_row_to_row() -> None:
    rng = BatchRng(1, 0, np.arange(4, dtype=np.uint64))

    (mirror,) = RandomFlipLeftRight(np.array([0.0, 1.0, 0.0, 1.0])).draw(rng, np.tile([9, 9], (4, 1)))

    assert mirror.tolist() == [0, 1, 0, 1]


def test_a_resized_image_is_mirrored_where_it_is_said() -> None:
    x, size = noise(4, 6), np.array([2, 3], np.int32)
    op = ResizeFlip(Resize(2, 3))

    np.testing.assert_array_equal(op.reference(x, size, np.array(0)), ops.resize(x, (2, 3)))
    np.testing.assert_array_equal(op.reference(x, size, np.array(1)), ops.resize(x, (2, 3))[:, ::-1])


def test_two_flips_cancel() -> None:
    twice = Reverse(columns=True).merge(Reverse(columns=True))
    turned = Reverse(columns=True).merge(Reverse(lines=True))

    assert twice is not None
    assert twice.is_identity(IMAGE)
    assert turned is not None
    assert turned == Reverse(columns=True, lines=True)
    np.testing.assert_array_equal(turned.reference(X), X[::-1, ::-1])
    assert not turned.is_identity(IMAGE)


TURNED = gp.Dataset.from_tensor_slices((np.zeros((2, 8, 8, 3), np.uint32), np.arange(2)))


CHANNELS_FIRST = TensorSpec((3, 2, 2), "uint8", "CHW")


def transposed(spec: TensorSpec) -> Any:
    return trace(ops.transpose, flatten(0)[1], [spec])


test_wrong_arguments_of_flips_are_refused = refused(
    (SpecError, "rot90 needs an image of uint8, int16, int32, float32, .*, got uint32", lambda: TURNED.map(ops.rot90)),
    (PlanTypeError, "rot90 needs an integer for k", lambda: ops.rot90(X, 0.5)),
    (SpecError, r"an image \{HWC\}, got uint8\[3,2,2\]\{CHW\}", lambda: transposed(CHANNELS_FIRST)),
    (PlanError, '"CHW" or "HWC", got \'WHC\'', lambda: ops.transpose(X, "WHC")),  # type: ignore[arg-type]
    (SpecError, "p from 0 to 1, got", lambda: ops.random_flip_left_right(X, p=1.5)),
    (PlanTypeError, "a number for p", lambda: ops.random_flip_up_down(X, p="often")),
    (SpecError, "flip_left_right needs an image", lambda: ops.flip_left_right(np.zeros((3, 4), np.uint8))),
    (SpecError, "random_flip_up_down needs 1 images, got 2", lambda: RandomFlipUpDown().infer(IMAGE, IMAGE)),
)


BACKENDS = ["numpy"] + ["dali"] * machine.has_dali()


def test_one_turn_goes_counter_clockwise() -> None:
    # 0 1 2      2 5
    # 3 4 5  ->  1 4
    #            0 3
    np.testing.assert_array_equal(ops.rot90(X)[:, :, 0], [[2, 5], [1, 4], [0, 3]])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "int32", "float32"])
def test_every_image_can_have_turns_of_its_own(backend: str, dtype: str) -> None:
    most = 200 if dtype == "float32" else int(np.iinfo(dtype).max)
    x = np.random.default_rng(1).integers(0, most, (9, 5, 7, 3), endpoint=True).astype(dtype)
    turns = np.arange(9) - 3
    ds = gp.Dataset.from_tensor_slices((x, turns)).map(ops.rot90)

    got = list(ds.with_options(on(backend)))

    assert ds.element_spec.shape == (None, None, 3)
    for image, source, k in zip(got, x, turns.tolist(), strict=True):
        np.testing.assert_array_equal(image, np.rot90(source, k))


@pytest.mark.parametrize("backend", BACKENDS)
def test_geometry_behind_a_turn_goes_by_the_turned_size(backend: str) -> None:
    x = np.random.default_rng(2).integers(0, 256, (4, 6, 9, 3), dtype=np.uint8)
    turns = np.array([0, 1, 2, 3])
    chain = gp.Dataset.from_tensor_slices((x, turns)).map(
        lambda i, k: ops.resize_with_crop_or_pad(ops.rot90(i, k), 9, 6)
    )

    got = list(chain.with_options(on(backend)))

    for image, source, k in zip(got, x, turns.tolist(), strict=True):
        np.testing.assert_array_equal(image, ops.resize_with_crop_or_pad(np.rot90(source, k), 9, 6))


def test_a_square_keeps_its_shape_whatever_the_turns_are() -> None:
    ds = gp.Dataset.from_tensor_slices((np.zeros((2, 8, 8, 3), np.uint8), np.arange(2))).map(ops.rot90)

    assert ds.element_spec.shape == (8, 8, 3)


def test_channels_move_to_the_front_and_back() -> None:
    x = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)

    front = ops.transpose(x, "CHW")

    assert front.shape == (4, 2, 3)
    assert front[3, 1, 2] == x[1, 2, 3]
    assert front.flags.c_contiguous
    np.testing.assert_array_equal(ops.transpose(front, "HWC"), x)


def test_a_batch_is_transposed_row_by_row() -> None:
    x = np.arange(2 * 3 * 4 * 1, dtype=np.uint8).reshape(2, 3, 4, 1)

    assert ops.transpose(x).shape == (2, 1, 3, 4)


def test_the_spec_follows() -> None:
    traced = trace(ops.transpose, flatten(0)[1], [TensorSpec((None, 224, 3), "uint8", "HWC")])

    assert traced is not None
    assert traced.outputs[0].spec == TensorSpec((3, None, 224), "uint8", "CHW")


@pytest.mark.parametrize("backend", ["numpy"] + ["dali"] * has_dali())
def test_the_size_of_an_array_without_a_layout_is_that_of_the_layout_it_is_taken_for(backend: Any) -> None:
    planes = np.random.default_rng(0).integers(0, 256, (2, 3, 20, 30), np.uint8)

    def middle(x: Any) -> Any:
        return ops.center_crop(ops.transpose(x, "HWC"), (10, 12))

    made = list(Dataset.from_tensor_slices(planes).map(middle).with_options(Options(device="cpu", backend=backend)))

    np.testing.assert_array_equal(np.stack(made), planes.transpose(0, 2, 3, 1)[:, 5:15, 9:21])
