"""Images of 16 bits through the ops of a chain: the same law of dtypes on every executor, and no bit lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from tests.chains.data import on
from tests.conformance.harness import EXECUTORS

X = np.random.default_rng(16).integers(0, 65536, (3, 12, 14, 3)).astype(np.uint16)

MOVES: dict[str, Callable[[Any], Any]] = {
    "crop_to_bounding_box": lambda x: ops.crop_to_bounding_box(x, 1, 2, 6, 7),
    "random_crop": lambda x: ops.random_crop(x, (5, 6), seed=1),
    "flip_left_right": ops.flip_left_right,
    "random_flip_up_down": lambda x: ops.random_flip_up_down(x, seed=1),
    "rot90": ops.rot90,
    "pad_to_bounding_box": lambda x: ops.pad_to_bounding_box(x, 1, 2, 16, 18),
    "resize_with_crop_or_pad": lambda x: ops.resize_with_crop_or_pad(x, 16, 8),
    "resize nearest": lambda x: ops.resize(x, (8, 9), method="nearest"),
    "transpose": ops.transpose,
}
REALS: dict[str, Callable[[Any], Any]] = {
    "resize": lambda x: ops.resize(x, (8, 9)),
    "normalize": lambda x: ops.normalize(x, [1e4] * 3, [2e4] * 3),
    "cast": lambda x: ops.cast(x, "float32"),
    "convert_image_dtype": lambda x: ops.convert_image_dtype(x, "float32"),
}


@pytest.mark.parametrize("kind", EXECUTORS)
def test_moved_pixels_keep_all_their_bits(kind: str) -> None:
    ds = gp.Dataset.from_tensor_slices(X).map(lambda x: {name: op(x) for name, op in MOVES.items()}, traced=True)
    plain = list(ds.with_options(on("numpy")).iterator(epoch=0))
    specs: Any = ds.element_spec

    assert {name: specs[name].dtype for name in MOVES} == dict.fromkeys(MOVES, np.dtype(np.uint16))
    for got, expected, source in zip(ds.with_options(on(kind)).iterator(epoch=0), plain, X, strict=True):
        for name in MOVES:
            np.testing.assert_array_equal(got[name], expected[name], err_msg=name)
        np.testing.assert_array_equal(got["rot90"], np.rot90(source))
        np.testing.assert_array_equal(got["crop_to_bounding_box"], source[1:7, 2:9])
        assert set(np.unique(got["resize nearest"])) <= set(np.unique(source))


@pytest.mark.parametrize("kind", EXECUTORS)
def test_computed_pixels_are_those_of_the_same_floats(kind: str) -> None:
    ds = gp.Dataset.from_tensor_slices(X).map(lambda x: {name: op(x) for name, op in REALS.items()}, traced=True)

    for got, source in zip(ds.with_options(on(kind)), X, strict=True):
        real = source.astype(np.float32)
        assert {name: value.dtype for name, value in got.items()} == dict.fromkeys(REALS, np.dtype(np.float32))
        np.testing.assert_array_equal(got["cast"], real)
        # One unit in the last place: a product with 1 / 65535 or 1 / std instead of a quotient.
        np.testing.assert_allclose(got["convert_image_dtype"], real / 65535, rtol=3e-7)
        np.testing.assert_allclose(got["normalize"], (real - 1e4) / 2e4, rtol=3e-7, atol=1e-6)
        # float32 weights of 16-bit samples: 65535 * 2**-20
        np.testing.assert_allclose(got["resize"], ops.resize(real, (8, 9)), atol=0.1)
