"""Whole chains of image ops, pixel by pixel: files are decoded, changed and batched by tf.image and by gpupipe.

The same function is mapped over the same files; on gpupipe by NumPy and by DALI on the CPU. tf.image decodes with
dct_method="INTEGER_ACCURATE", which is libjpeg's own and everybody else's.

Each chain says how far it may be off, and why: what is not named is exact.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.ops._shared.samples import encoded, noise, picture

pytestmark = [pytest.mark.tf, pytest.mark.filterwarnings("ignore")]

Array = Any

FILES = [
    encoded(picture(61, 83), quality=90, subsampling=0),
    encoded(picture(48, 47), quality=85, subsampling=2),
    encoded(noise(33, 65), quality=95, subsampling=1),
    encoded(picture(57, 45), quality=80, progressive=True),
    encoded(picture(45, 71, 1), quality=90),
]
"""JPEGs of odd sizes, of 4:4:4, 4:2:0 and 4:2:2, progressive, gray; all at least 33 pixels high and 45 wide."""


class Off(NamedTuple):
    """How far a chain may be off on the NumPy executor, on DALI, and there on the outermost ring of pixels, and why."""

    numpy: float = 0
    dali: float = 0
    ring: float | None = None
    why: str = ""


EXACT = Off()
WEIGHTS = Off(2e-3, 2e-2, why="float32 weights of the kernel, summed in another order")
AREAS = Off(5e-3, 5e-3, why="tf.image adds up float32 areas along both axes at once")
EDGE = Off(2e-3, 2e-2, ring=18, why="DALI repeats the edge where tf.image leaves out what lies outside")
TABLE = Off(2e-3, 0.4, why="DALI's kernels are tables of 1024 entries")
TABLES = Off(0.2, 0.5, why="without antialias tf.image's bicubic kernel is a table as well")
LAST = Off(1e-6, 1e-6, why="the last bit of float32")
HSV = Off(1e-5, 1e-5, why="float32 through HSV and back")
ROUND = Off(1, 1, why="float32 next to n + 0.5 becomes either integer")
SUMS = Off(2e-5, 2e-4, why="mean and deviation are sums of all pixels, added in another order")

Chain = Callable[[Any, Any], Any]


def _rgb(im: Any, data: Any) -> Any:
    return im.decode_jpeg(data, channels=3)


def _floats(im: Any, data: Any) -> Any:
    return im.convert_image_dtype(_rgb(im, data), "float32")


CHAINS: dict[str, tuple[Chain, Off]] = {
    "decode": (lambda im, x: im.decode_jpeg(x), EXACT),
    "decode gray": (lambda im, x: im.decode_jpeg(x, channels=1), EXACT),
    "decode an image": (lambda im, x: im.decode_image(x, channels=3, expand_animations=False), EXACT),
    "central_crop 0.875": (lambda im, x: im.central_crop(_rgb(im, x), 0.875), EXACT),
    "central_crop all": (lambda im, x: im.central_crop(_rgb(im, x), 1.0), EXACT),
    "crop_to_bounding_box": (lambda im, x: im.crop_to_bounding_box(_rgb(im, x), 3, 5, 30, 40), EXACT),
    "crop_to_bounding_box one pixel": (lambda im, x: im.crop_to_bounding_box(_rgb(im, x), 32, 44, 1, 1), EXACT),
    "pad_to_bounding_box": (lambda im, x: im.pad_to_bounding_box(_rgb(im, x), 4, 7, 80, 101), EXACT),
    "resize_with_crop_or_pad mixed": (lambda im, x: im.resize_with_crop_or_pad(_rgb(im, x), 50, 50), EXACT),
    "flip_left_right": (lambda im, x: im.flip_left_right(_rgb(im, x)), EXACT),
    "flip_up_down": (lambda im, x: im.flip_up_down(_rgb(im, x)), EXACT),
    "flip, crop, flip": (
        lambda im, x: im.flip_left_right(im.crop_to_bounding_box(im.flip_left_right(_rgb(im, x)), 2, 3, 20, 30)),
        EXACT,
    ),
    "rot90 by 3, cropped": (lambda im, x: im.crop_to_bounding_box(im.rot90(_rgb(im, x), k=3), 2, 1, 33, 21), EXACT),
    "rgb_to_grayscale": (lambda im, x: im.rgb_to_grayscale(_rgb(im, x)), ROUND),
    "grayscale_to_rgb": (lambda im, x: im.grayscale_to_rgb(im.decode_jpeg(x, channels=1)), EXACT),
    "convert_image_dtype to float32": (_floats, LAST),
    "convert_image_dtype to uint16": (lambda im, x: im.convert_image_dtype(_rgb(im, x), "uint16"), EXACT),
    "convert_image_dtype between two integers": (
        lambda im, x: im.convert_image_dtype(im.adjust_brightness(_floats(im, x), delta=0.002), "uint8"),
        EXACT,
    ),
    "convert_image_dtype outside": (
        lambda im, x: im.convert_image_dtype(im.adjust_contrast(_floats(im, x), 3.0), "uint8"),
        ROUND,
    ),
    "per_image_standardization": (lambda im, x: im.per_image_standardization(_rgb(im, x)), SUMS),
    "adjust_brightness": (lambda im, x: im.adjust_brightness(_rgb(im, x), delta=0.2), ROUND),
    "adjust_contrast": (lambda im, x: im.adjust_contrast(_rgb(im, x), 1.7), ROUND),
    "adjust_saturation": (lambda im, x: im.adjust_saturation(_rgb(im, x), 0.4), ROUND),
    "adjust_hue": (lambda im, x: im.adjust_hue(_rgb(im, x), -0.3), ROUND),
    "adjust_gamma": (lambda im, x: im.adjust_gamma(_rgb(im, x), 1.8, 0.9), ROUND),
    "all four colours in float32": (
        lambda im, x: im.adjust_contrast(
            im.adjust_hue(im.adjust_saturation(im.adjust_brightness(_floats(im, x), delta=0.125), 0.7), 0.1), 1.2
        ),
        Off(3e-5, 3e-5, why="float32 through HSV and back, and the mean of all pixels"),
    ),
    "the chain of ResNet's validation": (
        lambda im, x: im.resize(im.central_crop(_rgb(im, x), 0.875), (24, 24)),
        WEIGHTS,
    ),
    "resize, standardise": (
        lambda im, x: im.per_image_standardization(im.resize(_rgb(im, x), (20, 21))),
        Off(2e-4, 2e-3, why="of the weights of the kernel, divided by a deviation of 30 and more"),
    ),
    "resize of floats": (
        lambda im, x: im.resize(_floats(im, x), (25, 31)),
        Off(1e-5, 1e-4, why="as of integers, of which 255 is 1"),
    ),
    "resize, fit": (lambda im, x: im.resize(_rgb(im, x), (30, 30), preserve_aspect_ratio=True), WEIGHTS),
    "crop, then resize up": (
        lambda im, x: im.resize(im.crop_to_bounding_box(_rgb(im, x), 5, 6, 17, 19), (51, 40)),
        WEIGHTS,
    ),
}

RESIZES: dict[str, tuple[str, bool, Off]] = {
    "nearest": ("nearest", False, EXACT),
    "area": ("area", False, AREAS),
    "bilinear": ("bilinear", False, WEIGHTS),
    "bilinear, antialias": ("bilinear", True, EDGE),
    "bicubic": ("bicubic", False, TABLES),
    "bicubic, antialias": ("bicubic", True, TABLE),
    "lanczos3": ("lanczos3", False, TABLE),
    "lanczos3, antialias": ("lanczos3", True, TABLE),
}
SIZES = [(24, 31), (61, 83), (17, 96), (1, 1)]


@pytest.fixture(params=["numpy", "dali"])
def backend(request: pytest.FixtureRequest) -> Any:
    if request.param == "dali":
        pytest.importorskip("nvidia.dali")
    return request.param


def _their_ops(tf: Any) -> Any:
    """tf.image, with a decoder that rounds as libjpeg does."""
    names = {name: getattr(tf.image, name) for name in dir(tf.image) if not name.startswith("_")}
    accurate = functools.partial(tf.io.decode_jpeg, dct_method="INTEGER_ACCURATE")
    names["decode_jpeg"] = accurate
    names["decode_image"] = lambda x, channels, expand_animations: accurate(x, channels=channels)  # these are JPEGs
    names["convert_image_dtype"] = lambda x, dtype: tf.image.convert_image_dtype(x, dtype, saturate=True)
    return SimpleNamespace(**names)


def _ours(chain: Chain, files: list[bytes], backend: Any, batch: int = 0) -> list[Array]:
    dataset = gp.Dataset.from_tensor_slices(np.array(files, object))
    dataset = dataset.map(functools.partial(chain, ops), traced=True)
    dataset = dataset.batch(batch) if batch else dataset
    return [np.asarray(x) for x in dataset.with_options(gp.Options(device="cpu", backend=backend))]


def _theirs(tf: Any, chain: Chain, files: list[bytes], batch: int = 0) -> list[Array]:
    names = _their_ops(tf)

    def build() -> Any:
        dataset = tf.data.Dataset.from_tensor_slices(files).map(lambda x: chain(names, x))
        return dataset.batch(batch) if batch else dataset

    return list(tf.autograph.experimental.do_not_convert(build)().as_numpy_iterator())


def _compare(got: list[Array], expected: list[Array], off: Off, backend: Any, who: str) -> None:
    assert len(got) == len(expected)
    atol = off.dali if backend == "dali" else off.numpy
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), f"{who}, file {i}"
        difference = np.abs(a.astype(np.float64) - b.astype(np.float64))
        if backend == "dali" and off.ring is not None:
            assert difference.max(initial=0) <= off.ring, f"{who}, file {i}"
            difference = difference[1:-1, 1:-1]
        assert difference.max(initial=0) <= atol, f"{who}, file {i}: {difference.max()} is above {atol} ({off.why})"


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_gives_tensorflows_pixels(tf: Any, name: str, backend: Any) -> None:
    chain, off = CHAINS[name]

    _compare(_ours(chain, FILES, backend), _theirs(tf, chain, FILES), off, backend, name)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", RESIZES)
def test_every_method_of_resize_gives_tensorflows_pixels(
    tf: Any, name: str, size: tuple[int, int], backend: Any
) -> None:
    method, antialias, off = RESIZES[name]

    def chain(im: Any, x: Any) -> Any:
        return im.resize(_rgb(im, x), size, method=method, antialias=antialias)

    if size == (1, 1) and off is EDGE:
        off = Off(off.numpy, 18, why=off.why)  # one pixel is all ring
    _compare(_ours(chain, FILES, backend, batch=2), _theirs(tf, chain, FILES, batch=2), off, backend, name)


def test_a_fraction_that_float32_does_not_hold_is_that_of_eager_tensorflow(tf: Any, backend: Any) -> None:
    def chain(im: Any, x: Any) -> Any:
        return im.central_crop(_rgb(im, x), 1 / 3)

    names = _their_ops(tf)
    expected = [chain(names, x).numpy() for x in FILES]

    _compare(_ours(chain, FILES, backend), expected, EXACT, backend, "central_crop")
    # In a graph, where sizes are not known, tf.image rounds the fraction to float32: other sizes, where they are exact.
    assert [x.shape for x in _theirs(tf, chain, FILES)] != [x.shape for x in expected]


def test_images_and_labels_stay_together(tf: Any, backend: Any) -> None:
    def build(D: Any, im: Any) -> Any:
        labels = np.arange(len(FILES))

        def fn(x: Any, label: Any) -> Any:
            image = im.flip_left_right(im.resize_with_crop_or_pad(im.decode_jpeg(x, channels=3), 33, 45))
            return {"image": image, "label": label * 2}

        files = FILES if D is not gp.Dataset else np.array(FILES, object)
        mapped = D.from_tensor_slices((files, labels)).map(fn).filter(lambda e: e["label"] != 4)
        return mapped.repeat(2).batch(3, drop_remainder=True)

    expected = list(build(tf.data.Dataset, _their_ops(tf)).as_numpy_iterator())
    got = list(build(gp.Dataset, ops).with_options(gp.Options(device="cpu", backend=backend)))

    assert len(got) == len(expected) == 2
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a["label"], b["label"])
        np.testing.assert_array_equal(a["image"], b["image"])
