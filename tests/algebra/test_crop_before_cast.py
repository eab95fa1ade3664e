"""A crop moves below a conversion, so that the window alone is decoded and converted; no pixel changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.transform.machine import has_dali

FILES = [encoded(picture(40 + n, 60 - n), "PNG") for n in range(6)]


def cast_then_window(data: Any) -> Any:
    return ops.random_resized_crop(ops.cast(ops.decode_png(data, channels=3), "float32"), (9, 11), antialias=False)


def scaled_then_window(data: Any) -> Any:
    return ops.random_crop(ops.convert_image_dtype(ops.decode_png(data, channels=3), "float32"), (20, 20))


def cast_then_padded(data: Any) -> Any:
    return ops.center_crop(ops.cast(ops.decode_png(data, channels=3), "float32"), (50, 50))


def cast_is_used_twice(data: Any) -> Any:
    image = ops.cast(ops.decode_png(data, channels=3), "float32")
    return ops.center_crop(image, (20, 20)), ops.resize(image, (8, 8))


def chain(fn: Callable[[Any], Any], backend: Any, *disabled: str) -> gp.Dataset:
    options = gp.Options(device="cpu", backend=backend, seed=1, disabled_rules=disabled)
    return gp.Dataset.from_tensor_slices(FILES).map(fn, traced=True).batch(3).with_options(options)


@pytest.mark.parametrize("backend", ["numpy", *["dali"] * has_dali()])
@pytest.mark.parametrize("fn", [cast_then_window, scaled_then_window, cast_then_padded, cast_is_used_twice])
def test_the_pixels_are_the_same_with_and_without_the_rule(fn: Callable[[Any], Any], backend: str) -> None:
    runs = [list(chain(fn, backend, *disabled)) for disabled in ((), ("crop_before_cast",))]

    for after, before in zip(*runs, strict=True):
        for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (after, before)), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("fn", [cast_then_window, scaled_then_window])
def test_only_the_window_is_decoded(fn: Callable[[Any], Any]) -> None:
    with_rule, without = (str(chain(fn, "numpy", *disabled).explain()) for disabled in ((), ("crop_before_cast",)))

    assert "decode_crop" in with_rule and "decode_crop" not in without
