"""A crop moves below a conversion, so that the window alone is decoded and converted; no pixel changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpupipe import ops
from gpupipe.transform.machine import has_dali
from tests.algebra.test_resize_flip import chain, leaves


def cast_then_window(data: Any) -> Any:
    return ops.random_resized_crop(ops.cast(ops.decode_png(data, channels=3), "float32"), (9, 11), antialias=False)


def scaled_then_window(data: Any) -> Any:
    return ops.random_crop(ops.convert_image_dtype(ops.decode_png(data, channels=3), "float32"), (20, 20))


def cast_then_padded(data: Any) -> Any:
    return ops.center_crop(ops.cast(ops.decode_png(data, channels=3), "float32"), (50, 50))


def cast_is_used_twice(data: Any) -> Any:
    image = ops.cast(ops.decode_png(data, channels=3), "float32")
    return ops.center_crop(image, (20, 20)), ops.resize(image, (8, 8))


@pytest.mark.parametrize("backend", ["numpy", *["dali"] * has_dali()])
@pytest.mark.parametrize("fn", [cast_then_window, scaled_then_window, cast_then_padded, cast_is_used_twice])
def test_the_pixels_are_the_same_with_and_without_the_rule(fn: Callable[[Any], Any], backend: str) -> None:
    for after, before in zip(leaves(chain(fn, backend)), leaves(chain(fn, backend, "crop_before_cast")), strict=True):
        np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("fn", [cast_then_window, scaled_then_window])
def test_only_the_window_is_decoded(fn: Callable[[Any], Any]) -> None:
    with_rule, without = (str(chain(fn, "numpy", *disabled).explain()) for disabled in ((), ("crop_before_cast",)))

    assert "decode_crop" in with_rule and "decode_crop" not in without
