"""A flip after a resize becomes one op with it, which DALI does in one pass; only there pixels differ, by little."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.optimize.place.placer import Placer
from gpupipe.transform.machine import has_dali, has_fast

FILES = [encoded(picture(40 + 9 * n, 60 - 5 * n), "PNG") for n in range(6)]
HOSTS = ["numpy", *["fast"] * has_fast()]
RULE = "fuse_resize_flip"


def image_of(data: Any) -> Any:
    return ops.decode_png(data, channels=3)


def window(image: Any, **how: Any) -> Any:
    return ops.random_flip_left_right(ops.random_resized_crop(image, (24, 31), **how))


def training(data: Any) -> Any:
    return ops.normalize(window(image_of(data)), mean=ops.IMAGENET_MEAN, std=ops.IMAGENET_STD)


def training_in_float(data: Any) -> Any:
    image = window(ops.cast(image_of(data), "float32"), antialias=False)
    return ops.normalize(image, mean=ops.IMAGENET_MEAN, std=ops.IMAGENET_STD)


def smaller_than_the_result(data: Any) -> Any:
    return ops.random_flip_left_right(ops.resize(ops.random_crop(image_of(data), (1, 1)), (5, 4)))


Fn = Callable[[Any], Any]
FUSED: dict[str, Fn] = {
    "training": training,
    "training in float": training_in_float,
    "no mean": lambda x: ops.random_flip_left_right(ops.resize(image_of(x), (9, 70), antialias=True)),
    "sides of their own": lambda x: ops.center_crop(
        ops.random_flip_left_right(ops.resize_shorter(image_of(x), 22)), (20, 20)
    ),
    "two images": lambda x: window((image_of(x), image_of(x)), interpolation=("bilinear", "nearest")),
    "smaller than the result": smaller_than_the_result,
}


def used_twice(data: Any) -> Any:
    image = ops.resize(image_of(data), (24, 31))
    return image, ops.random_flip_left_right(image)


OTHERS: dict[str, Fn] = {
    "used twice": used_twice,
    "always": lambda x: ops.flip_left_right(ops.resize(image_of(x), (24, 31), antialias=True)),
    "upside down": lambda x: ops.random_flip_up_down(ops.resize(image_of(x), (24, 31))),
    "another kernel": lambda x: ops.random_flip_left_right(ops.resize(image_of(x), (24, 31), method="bicubic")),
    "cropped between": lambda x: ops.random_flip_left_right(
        ops.random_crop(ops.resize(image_of(x), (24, 31)), (20, 20))
    ),
}


def chain(fn: Fn, backend: Any, *disabled: str) -> gp.Dataset:
    options = gp.Options(device="cpu", backend=backend, seed=1, disabled_rules=disabled)
    return gp.Dataset.from_tensor_slices(FILES).map(fn, traced=True).batch(3).with_options(options)


def leaves(batches: gp.Dataset) -> list[np.ndarray[Any, Any]]:
    return [leaf for batch in batches for leaf in (batch if isinstance(batch, tuple) else (batch,))]


@pytest.mark.parametrize("backend", HOSTS)
@pytest.mark.parametrize("fn", FUSED.values(), ids=FUSED)
def test_the_host_gives_the_same_pixels_with_and_without_the_rule(fn: Fn, backend: str) -> None:
    for fused, apart in zip(leaves(chain(fn, backend)), leaves(chain(fn, backend, RULE)), strict=True):
        np.testing.assert_array_equal(fused, apart)


@pytest.mark.skipif(not has_dali(), reason="DALI is not installed")
@pytest.mark.parametrize("fn", FUSED.values(), ids=FUSED)
def test_dali_gives_nearly_the_same_pixels(fn: Fn) -> None:
    scale = 1 / min(ops.IMAGENET_STD) if fn in (training, training_in_float) else 1.0
    # other float32 sums: next to n + 0.5 another integer, else 0.02 of 255
    level = scale * (0.02 if fn in (training_in_float, smaller_than_the_result) else 1.0)

    for fused, apart in zip(leaves(chain(fn, "dali")), leaves(chain(fn, "dali", RULE)), strict=True):
        differs = np.abs(fused.astype(float) - apart)
        assert differs.max() <= level * 1.00001
        assert (differs > 0.02 * scale).mean() < 0.002


@pytest.mark.parametrize("fn", FUSED.values(), ids=FUSED)
def test_one_op_takes_the_place_of_two(fn: Fn) -> None:
    fused, apart = (str(chain(fn, "numpy", *disabled).explain()) for disabled in ((), (RULE,)))

    assert "runs   resize_flip" in fused
    assert "runs   resize_flip" not in apart


@pytest.mark.parametrize("fn", OTHERS.values(), ids=OTHERS)
def test_others_stay_as_they_are(fn: Fn) -> None:
    assert "runs   resize_flip" not in str(chain(fn, "numpy").explain())


def test_on_a_gpu_the_flip_stays_with_the_normalisation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Placer, "has_gpu", lambda self: True)

    assert "runs   resize_flip" not in str(chain(training, "numpy").explain())


def test_images_of_unknown_channels_stay_as_they_are() -> None:
    spec = gp.TensorSpec((None, None, None), "uint8", "HWC")
    images = gp.Dataset.from_generator(lambda: iter([picture(9, 8)]), output_signature=spec)
    ds = images.map(lambda image: ops.random_flip_left_right(ops.resize(image, (4, 5))), traced=True).batch(1)

    assert "runs   resize_flip" not in str(ds.with_options(gp.Options(device="cpu", backend="numpy")).explain())
