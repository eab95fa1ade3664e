"""The forms of ops by the libraries of the extra `fast`: which are exact, and how far the others are from NumPy."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.graph.op import Array
from gpupipe.ops._shared import libraries
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.crop_mirror_normalize import CropMirrorNormalize
from gpupipe.ops._shared.libraries import averaged
from gpupipe.ops._shared.samples import encoded, noise, picture
from gpupipe.ops.normalize import IMAGENET_MEAN, IMAGENET_STD
from gpupipe.ops.resize import Resize

pytest.importorskip("cv2")
pytest.importorskip("cykooz_resizer")

SIZES = [(24, 31), (61, 83), (130, 20), (1, 1), (61, 200), (29, 31)]


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int32)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "uint16"])
@pytest.mark.parametrize("into", [False, True], ids=["new", "into the batch"])
def test_normalised_images_are_bit_identical(channels: int, layout: Any, dtype: str, into: bool) -> None:
    x = noise(17, 23, channels).astype(dtype)
    mean, std = (IMAGENET_MEAN, IMAGENET_STD) if channels == 3 else (127.0, 3.0)
    for crop in (None, Crop()):
        op = CropMirrorNormalize(mean, std, layout, True, crop)
        window = () if crop is None else (ints(3, 2), ints(9, 20))
        for mirror in (0, 1):
            expected = op.reference(x, *window, mirror)
            out = np.full(expected.shape, np.nan, np.float32) if into else None
            np.testing.assert_array_equal(op.fast(x, *window, mirror, out=out), expected)
            if out is not None:
                np.testing.assert_array_equal(out, expected)


def test_a_resized_image_stays_what_it_is_when_the_next_one_is_resized() -> None:
    images = [noise(61, 83), noise(40, 61), noise(24, 83), noise(61, 31), noise(24, 31)]
    sizes = [(24, 31), (24, 31), (24, 31), (24, 31), (31, 24), (600, 700), (600, 700)]
    made = [(x, size, averaged(x, *size, "bilinear", x.dtype)) for size in sizes for x in images]

    for x, size, found in made:
        expected = Resize(*size, antialias=True, keep_dtype=True).reference(x, ints(*size))
        assert np.abs(found.astype(int) - expected.astype(int)).max() <= 1  # as in the test below


@pytest.fixture(params=[1 << 19, 1500], ids=["whole", "in bands"])
def _bands(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let images be resized as large ones are, too."""
    monkeypatch.setattr(libraries, "_BAND", request.param)


@pytest.mark.usefixtures("_bands")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize(("method", "most"), [("bilinear", 1), ("bicubic", 2), ("lanczos3", 2)])
def test_bytes_with_antialias_are_those_of_pillow_but_for_a_rounding_of_each_axis(
    size: tuple[int, int], channels: int, method: str, most: int
) -> None:
    """The integers that stand for weights have other sizes: a sum next to n + 0.5 is rounded the other way."""
    op = Resize(*size, method, antialias=True, keep_dtype=True)
    x = noise(61, 83, channels)

    got, expected = op.fast(x, ints(*size)), op.reference(x, ints(*size))

    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    assert np.abs(got.astype(int) - expected).max() <= most


@pytest.mark.usefixtures("_bands")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["uint8", "float32", "int16"])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("method", ["bilinear", "bicubic", "lanczos3"])
def test_floats_are_those_of_numpy_but_for_roundings_of_float32(
    size: tuple[int, int], dtype: str, antialias: bool, method: str
) -> None:
    """Sums of up to 130 products of values up to 255 in another order: 2e-7 of them each."""
    op = Resize(*size, method, antialias=antialias)
    x = noise(61, 83).astype(dtype)

    got, expected = op.fast(x, ints(*size)), op.reference(x, ints(*size))

    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-3)


@pytest.mark.parametrize("method", ["bilinear", "bicubic", "lanczos3"])
@pytest.mark.parametrize("keep", [False, True], ids=["floats", "bytes"])
@pytest.mark.parametrize(("n", "m"), [(30, 50), (25, 35), (20, 36), (12, 60), (30, 30), (60, 36), (60, 12), (61, 40)])
def test_any_part_of_a_resized_image_is_computed_alone(n: int, m: int, keep: bool, method: str) -> None:
    """Also of those that begin at a pixel's centre, where all kernels but that pixel's have no weight."""
    x = noise(n, n + 1)
    whole = Resize(m, m, method, antialias=True, keep_dtype=keep).reference(x, np.array([m, m])).astype(float)
    for top, left in ((a, b) for a in range(0, m - 5, 3) for b in (0, 1, m // 2)):
        parts = [(begin * side / m, (begin + 5) * side / m) for begin, side in ((top, n), (left, n + 1))]

        result = averaged(x, 5, 5, method, np.dtype(np.uint8 if keep else np.float32), None, (parts[0], parts[1]))

        # a rounding after each axis, as for whole images; floats by the last bits of sums of 255 times a few weights
        most = (1 if method == "bilinear" else 2) if keep else 0.001
        assert np.abs(result - whole[top : top + 5, left : left + 5]).max() <= most, (top, left)


def test_a_resize_needs_little_memory_that_is_new() -> None:
    """What is new for each image comes page by page from the system: 3.5 ms where the resize takes 0.5."""
    x = noise(375, 500)
    for antialias in (False, True):
        op = Resize(224, 224, antialias=antialias)
        op.fast(x, ints(224, 224))
        tracemalloc.start()
        try:
            result = op.fast(x, ints(224, 224))
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert most < result.nbytes + (1 << 20)


def test_a_large_shrink_without_antialias_is_that_of_numpy() -> None:
    x = noise(900, 40)
    op = Resize(100, 20)

    np.testing.assert_allclose(op.fast(x, ints(100, 20)), op.reference(x, ints(100, 20)), rtol=0, atol=2e-3)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "float32"])
def test_integers_without_antialias_are_rounded_once(size: tuple[int, int], dtype: str) -> None:
    """Where a float32 sum is next to n + 0.5, its last bit decides."""
    op = Resize(*size, keep_dtype=True)
    x = noise(61, 83).astype(dtype)

    got, expected = op.fast(x, ints(*size)), op.reference(x, ints(*size))

    assert got.dtype == expected.dtype == dtype
    assert np.abs(got.astype(np.float64) - expected.astype(np.float64)).max() <= (1 if dtype != "float32" else 1e-3)


@pytest.mark.parametrize(
    ("op", "x"),
    [
        (Resize(5, 7, "nearest"), noise(9, 8)),
        (Resize(5, 7, "bicubic"), noise(9, 8)),
        (Resize(5, 7), noise(9, 8, 5)),
        (Resize(5, 7, antialias=True, keep_dtype=True), noise(9, 8).astype(np.uint16)),
    ],
    ids=["nearest", "bicubic without antialias", "five channels", "16 bits"],
)
def test_what_the_libraries_do_not_compute_is_numpys(op: Resize, x: Array) -> None:
    np.testing.assert_array_equal(op.fast(x, ints(5, 7)), op.reference(x, ints(5, 7)))


@pytest.mark.parametrize("found", [None, object()], ids=["simplejpeg", "nvImageCodec"])
def test_explain_names_the_library_that_decodes_windows(found: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpupipe.optimize.place.stage_report.region_decoder", lambda: found)
    ds = gp.Dataset.from_tensor_slices([encoded(picture(40, 50))]).map(
        lambda x: ops.random_resized_crop(ops.decode_jpeg(x, channels=3), (8, 8))
    )

    texts = {name: ds.with_options(gp.Options(device="cpu", backend=name)).explain() for name in ("fast", "numpy")}

    assert (", by nvImageCodec" if found else ", by simplejpeg: nvImageCodec, which DALI brings") in str(texts["fast"])
    assert "nvImageCodec" not in str(texts["numpy"])


def test_opencv_starts_no_threads_of_its_own_while_a_chain_runs() -> None:
    import cv2

    from gpupipe.ops._shared.libraries import ONE_THREAD

    images = [picture(40, 50)] * 8
    ds = gp.Dataset.from_tensor_slices(np.stack(images)).map(lambda x: ops.resize(ops.cast(x, "float32"), (8, 8)))
    ds = ds.batch(2).with_options(gp.Options(device="cpu", backend="fast"))
    before = cv2.getNumThreads()
    try:
        cv2.setNumThreads(3)
        with iter(ds) as one, iter(ds) as two:
            next(one)
            next(two)
            assert cv2.getNumThreads() == 1
            list(one)
            assert cv2.getNumThreads() == 1
        assert cv2.getNumThreads() == 3

        ONE_THREAD.enter()
        cv2.setNumThreads(2)
        ONE_THREAD.leave()
        assert cv2.getNumThreads() == 2, "a number that somebody has set meanwhile is kept"
    finally:
        cv2.setNumThreads(before)
