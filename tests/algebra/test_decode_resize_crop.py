"""A window of a decoded and resized image becomes one op for "fast": it decodes and resizes what the window needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import SpecError
from gpupipe.extract.images import decode as decoders
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.decode_resize_crop import DecodeResizeCrop
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.ops.decode_jpeg import DecodeJpeg
from gpupipe.ops.resize import Resize
from gpupipe.transform.machine import has_dali, has_fast

RULE = "fuse_decode_resize_crop"

SIDES = ((170, 233), (233, 170), (64, 64), (301, 64), (70, 1000), (31, 25))
FILES = [
    *(encoded(picture(*sides), quality=90, subsampling=2, orientation=1 + n) for n, sides in enumerate(SIDES)),
    encoded(picture(90, 140, 1), quality=90),
    encoded(picture(90, 140), quality=80, progressive=True),
    encoded(picture(100, 130), "PNG"),
]

needs_fast = pytest.mark.skipif(not has_fast(), reason="the libraries of the extra `fast` are not installed")


def evaluation(data: Any) -> Any:
    image = ops.center_crop(ops.resize_shorter(ops.decode_image(data, channels=3), 36), (32, 32))
    return ops.transpose(ops.normalize(image, mean=ops.IMAGENET_MEAN, std=ops.IMAGENET_STD), "CHW")


def window_of(side: int, size: tuple[int, int], kernel: str = "bilinear", **how: Any) -> Callable[[Any], Any]:
    """A window of what `resize_shorter` gives, in the middle or, with another kernel than bilinear, anywhere."""
    crop = ops.center_crop if kernel == "bilinear" else ops.random_crop
    how = {"channels": 3, **how}
    return lambda data: crop(ops.resize_shorter(ops.decode_image(data, **how), side, kernel), size)


def floats(data: Any) -> Any:
    return ops.random_crop(ops.resize(ops.decode_image(data, channels=3), (50, 40), antialias=True), (30, 9))


Fn = Callable[[Any], Any]
FUSED: dict[str, tuple[Fn, float]] = {
    "evaluation": (evaluation, 1 / min(ops.IMAGENET_STD)),
    "integers": (window_of(41, (40, 23)), 1),
    "gray": (window_of(41, (40, 23), channels=1), 1),
    "upright": (window_of(41, (40, 23), exif_orientation=True), 1),
    "overshoots": (window_of(41, (30, 9), "bicubic"), 1),
    "larger": (window_of(400, (30, 9), "lanczos3"), 1),
    "one pixel": (window_of(9, (1, 1)), 1),
    "floats": (floats, 1e-3),
}
"""Functions, and how much a value may differ: an integer by a rounding, a float by the last bits of a few sums."""


def used_twice(data: Any) -> Any:
    image = ops.resize_shorter(ops.decode_image(data, channels=3), 36)
    return ops.center_crop(image, (32, 32)), ops.center_crop(image, (20, 20))


def decoded_twice(data: Any) -> Any:
    image = ops.decode_image(data, channels=3)
    return ops.center_crop(ops.resize_shorter(image, 36), (32, 32)), ops.resize_shorter(image, 9)


OTHERS: dict[str, Fn] = {
    "used twice": used_twice,
    "decoded twice": decoded_twice,
    "no antialias": lambda x: ops.random_crop(ops.resize(ops.decode_image(x, channels=3), (40, 50)), (9, 9)),
    "nearest": window_of(40, (9, 9), "nearest"),
    "beyond the image": window_of(20, (32, 32)),
    "decoded smaller": lambda x: ops.random_crop(ops.resize_shorter(ops.decode_jpeg(x, 3, 2), 40), (9, 9)),
}


def chain(fn: Fn, backend: Any, *disabled: str) -> gp.Dataset:
    options = gp.Options(device="cpu", backend=backend, seed=1, disabled_rules=disabled)
    return gp.Dataset.from_tensor_slices(FILES).map(fn, traced=True).ragged_batch(3).with_options(options)


def rows(batches: gp.Dataset) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(row) for batch in batches for row in batch]


@needs_fast
@pytest.mark.parametrize(("fn", "most"), FUSED.values(), ids=FUSED)
def test_one_op_gives_the_window_of_the_resized_image(fn: Fn, most: float) -> None:
    fused, apart, reference = (rows(chain(fn, *how)) for how in (("fast",), ("fast", RULE), ("numpy",)))

    assert RULE in str(chain(fn, "fast").explain())
    for one, three, meant in zip(fused, apart, reference, strict=True):
        assert one.dtype == three.dtype == meant.dtype
        assert one.shape == three.shape == meant.shape
        assert np.abs(one.astype(float) - meant).max() <= most * 1.001
        assert np.abs(one.astype(float) - three).max() <= most * 1.001


@needs_fast
@pytest.mark.parametrize("fn", OTHERS.values(), ids=OTHERS)
def test_others_stay_as_they_are(fn: Fn) -> None:
    assert RULE not in str(chain(fn, "fast").explain())


@pytest.mark.parametrize("backend", ["numpy", *["dali"] * has_dali()])
def test_other_executors_do_the_three_steps(backend: str) -> None:
    assert RULE not in str(chain(evaluation, backend).explain())


@needs_fast
def test_nothing_but_the_window_and_what_its_kernels_reach_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, real = [], decoders.decode

    def decode(*args: Any, window: Any, **how: Any) -> Any:
        asked.append(window)
        return real(*args, window=window, **how)

    monkeypatch.setattr("gpupipe.ops._shared.decoding.decode", decode)
    data = encoded(picture(200, 300), quality=90)
    op = DecodeResizeCrop(DecodeJpeg(3), Resize(antialias=True, keep_dtype=True), Crop(50, 50))

    op.fast(data, *map(np.array, ((100, 150), (25, 50), (50, 50))))

    ((top, left, height, width),) = asked
    # two pixels for one, from 50 and 100 on: the first centre is at 51, and the triangle around it begins at 49
    assert 48 <= top <= 49 and 98 <= left <= 99
    assert 151 <= top + height <= 153 and 201 <= left + width <= 203


@pytest.mark.parametrize("resize", [Resize(), Resize(method="nearest", antialias=True)], ids=["plain", "nearest"])
def test_it_needs_a_kernel_with_antialias(resize: Resize) -> None:
    with pytest.raises(SpecError, match="antialias"):
        DecodeResizeCrop(DecodeJpeg(3), resize, Crop())


def test_it_needs_a_window_inside_the_image() -> None:
    with pytest.raises(SpecError, match="does not pad"):
        DecodeResizeCrop(DecodeJpeg(3), Resize(antialias=True), Crop(pad=True))
