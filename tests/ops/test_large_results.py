"""Sizes that nothing can hold are refused before anything is allocated, and images without pixels are bad elements."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.errors import ShapeError, SpecError
from gpupipe.transform.machine import has_dali, has_fast
from tests.ops.refusals import refused
from tests.ops.test_result_dtypes import CALLS as OF_IMAGES

X = np.zeros((8, 9, 3), np.uint8)

HUGE = 1 << 24

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "resize": lambda x, n: ops.resize(x, (n, n)),
    "resize_shorter": lambda x, n: ops.resize_shorter(x, n),
    "resize_with_pad": lambda x, n: ops.resize_with_pad(x, n, n),
    "resize_with_crop_or_pad": lambda x, n: ops.resize_with_crop_or_pad(x, n, n),
    "random_shortest_size": lambda x, n: ops.random_shortest_size(x, n),
    "scale_jitter": lambda x, n: ops.scale_jitter(x, n, (1, 1)),
    "random_resized_crop": lambda x, n: ops.random_resized_crop(x, (n, n)),
    "center_crop": lambda x, n: ops.center_crop(x, (n, n)),
    "pad": lambda x, n: ops.pad(x, n),
    "pad_to_bounding_box": lambda x, n: ops.pad_to_bounding_box(x, 0, 0, n, n),
}

TOO_LARGE = r"{} needs a result of at most 1073741824 pixels, got a size of \d{{8}}x\d{{8}}"


@pytest.mark.parametrize("name", CALLS)
def test_arrays_are_refused(name: str) -> None:
    with pytest.raises(ShapeError, match=TOO_LARGE.format(name)):
        CALLS[name](X, HUGE)


@pytest.mark.parametrize("name", ["resize", "center_crop", "random_resized_crop", "pad"])
def test_a_size_that_is_written_is_an_error_of_the_line(name: str) -> None:
    with pytest.raises(SpecError, match=TOO_LARGE.format(name) + r".*test_large_results\.py:\d+"):
        gp.Dataset.from_tensors(X).map(lambda x: CALLS[name](x, HUGE), traced=True)


@pytest.mark.parametrize("backend", ["numpy"] + ["dali"] * has_dali())
@pytest.mark.parametrize("name", CALLS)
def test_a_size_from_the_data_is_a_bad_element(name: str, backend: Any) -> None:
    sizes = np.array([20, HUGE, 21])
    ds = gp.Dataset.from_tensor_slices((np.stack([X] * 3), sizes)).map(CALLS[name], traced=True)
    options = gp.Options(device="cpu", backend=backend)

    with pytest.raises(ShapeError, match=TOO_LARGE.format(name)):
        list(ds.with_options(options))
    assert len(list(ds.with_options(gp.Options(device="cpu", backend=backend, on_error="skip")))) == 2


def test_an_image_that_is_large_itself_is_taken() -> None:
    large = np.broadcast_to(np.zeros((), np.uint8), (1 << 16, 1 << 15, 1))

    assert ops.flip_left_right(large).shape == large.shape
    assert ops.crop_to_bounding_box(large, 0, 0, 1 << 16, 1 << 15).shape == large.shape


def test_channels_and_frames_of_the_input_are_no_pixels() -> None:
    for shape in ((1 << 14, 1 << 14, 64), (64, 1 << 14, 1 << 14, 3)):
        spec = gp.TensorSpec(shape, "uint8")
        images = gp.Dataset.from_generator(lambda: iter(()), output_signature=spec)

        with pytest.raises(SpecError, match="resize needs a result of at most 1073741824 pixels, got a size of 65536x"):
            images.map(lambda x: ops.resize(x, (1 << 16, 1 << 15)), traced=True)


def test_an_image_that_is_known_to_be_large_is_taken() -> None:
    spec = gp.TensorSpec((1 << 16, 1 << 15, 3), "uint8")
    images = gp.Dataset.from_generator(lambda: iter(()), output_signature=spec)

    for op in (ops.flip_left_right, lambda x: ops.flip_left_right(ops.rot90(x))):
        assert list(images.map(op, traced=True)) == []


test_a_box_of_a_fixed_size_is_refused = refused(
    (
        ShapeError,
        TOO_LARGE.format("crop_and_resize"),
        lambda: ops.crop_and_resize(X, (0, 0, 1, 1), crop_size=(HUGE, HUGE)),
    ),
)

MANY = re.escape("one_hot needs a result of at most 1073741824 numbers, got a shape of [256, 16777216]")
LABELS = gp.Dataset.from_tensor_slices(np.zeros((2, 1 << 8), np.int64))
LINE = np.zeros((1, 3000, 1), np.uint8)
LONG = "needs a result of at most 1073741824 pixels, got a size of 16777216x"  # it does not overflow
LONGEST = "from 1 to 16777216, got 16777217"

test_what_nothing_can_hold_is_refused = refused(
    (SpecError, "one_hot needs depth from 1 to 1073741824, got 1073741825", lambda: ops.one_hot(1, (1 << 30) + 1)),
    (ShapeError, MANY, lambda: ops.one_hot(np.zeros(1 << 8, np.int64), HUGE)),
    (ShapeError, MANY, lambda: list(LABELS.map(lambda x: ops.one_hot(x, HUGE), traced=True))),
    (SpecError, f"random_crop needs width {LONGEST}", lambda: ops.random_crop(X, (5, HUGE + 1))),
    (SpecError, f"target_height {LONGEST}", lambda: ops.crop_to_bounding_box(X, 0, 0, HUGE + 1, 5)),
    (ShapeError, LONG, lambda: ops.resize_shorter(LINE, HUGE)),
    (ShapeError, LONG, lambda: ops.random_shortest_size(LINE, HUGE)),
    (ShapeError, "got a size of 50x3000000000", lambda: zoomed_out(np.zeros((1, 60_000_000, 1), np.uint8))),
)


def zoomed_out(x: Any) -> Any:
    return ops.random_zoom_out(x, side_range=(50, 50), p=1)


def test_results_of_ops_on_any_values_are_not_measured() -> None:
    numbers = gp.Dataset.from_tensors(np.float32(1))

    assert next(iter(numbers.map(lambda x: ops.stack([x, x]), traced=True))).shape == (2,)


BACKENDS = ["numpy"] + ["fast"] * has_fast() + ["dali"] * has_dali()

OPS = "crop_and_resize elastic gaussian_blur random_gaussian_blur random_shortest_size scale_jitter".split()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", OPS)
def test_an_image_without_pixels_is_an_error_of_its_element(name: str, backend: Any) -> None:
    images = Dataset.from_generator(lambda: iter([np.ones((6, 5, 3), np.uint8), np.ones((0, 5, 3), np.uint8)]))
    ds = images.map(OF_IMAGES[name]).with_options(Options(device="cpu", backend=backend))

    with pytest.raises(ShapeError, match=rf"index 1: .*: {name} needs images with pixels, got one of 0x5"):
        list(ds)
    assert len(list(ds.with_options(Options(on_error="skip")))) == 1
