"""normalize and the arithmetic behind it, against numbers worked out by hand and exact quotients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpupipe import ops
from gpupipe.errors import PlanError, PlanTypeError, SpecError
from gpupipe.graph.trace import trace
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.crop_mirror_normalize import CropMirrorNormalize
from gpupipe.ops.normalize import DTYPES, IMAGENET_MEAN, IMAGENET_STD, Normalize
from gpupipe.spec import TensorSpec, flatten
from gpupipe.transform.machine import has_dali
from tests.conformance.harness import given, make_executor
from tests.ops.refusals import refused

IMAGE = np.random.default_rng(0).integers(0, 256, (30, 20, 3), dtype=np.uint8)


def test_each_channel_has_its_mean_and_deviation() -> None:
    x = np.array([[[10, 20, 30], [0, 255, 128]]], np.uint8)

    got = ops.normalize(x, mean=(10, 15, 28), std=(5, 2, 4))

    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, np.array([[[0, 2.5, 0.5], [-2, 120, 25]]], np.float32))


def test_what_is_cropped_and_mirrored_before_by_hand() -> None:
    x = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    op = CropMirrorNormalize((1.0, 2.0, 3.0), 2.0, "CHW", True, Crop())

    got = op.reference(x, np.array([1, 1]), np.array([1, 2]), 1)

    assert got.tolist() == [[[8.5, 7]], [[8.5, 7]], [[8.5, 7]]]  # of pixels 18, 19, 20 and 15, 16, 17


def test_one_number_stands_for_all_channels() -> None:
    x = np.array([[[10, 20], [30, 40]]], np.uint8)

    np.testing.assert_array_equal(ops.normalize(x, 10, 5), np.array([[[0, 2], [4, 6]]], np.float32))
    np.testing.assert_array_equal(ops.normalize(x), x.astype(np.float32))


@pytest.mark.skipif(not has_dali(), reason="DALI is not installed")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mean", [IMAGENET_MEAN, 100.0])
def test_dali_on_a_cpu_gives_the_same_bits_for_every_dtype(mean: Any, dtype: str) -> None:
    image = TensorSpec((30, 20, 3), dtype, "HWC")
    rows = [(IMAGE * scale).astype(dtype) for scale in (1, 0.37)]
    program, feed = given(Normalize(mean, IMAGENET_STD), image, rows, [])
    executor = make_executor("dali-cpu", program, 2)
    try:
        (got,) = executor.run(feed)
    finally:
        executor.close()

    for row, result in zip(rows, got, strict=True):
        np.testing.assert_array_equal(result, Normalize(mean, IMAGENET_STD).reference(row))


def test_channels_first_is_the_same_image() -> None:
    moved = np.ascontiguousarray(IMAGE.transpose(2, 0, 1))

    got = ops.normalize(moved, IMAGENET_MEAN, IMAGENET_STD, layout="CHW")

    np.testing.assert_array_equal(got, ops.normalize(IMAGE, IMAGENET_MEAN, IMAGENET_STD).transpose(2, 0, 1))


def test_the_constants_are_those_of_torchvision_in_units_of_bytes() -> None:
    np.testing.assert_allclose(np.array(IMAGENET_MEAN) / 255, [0.485, 0.456, 0.406], rtol=1e-12)
    np.testing.assert_allclose(np.array(IMAGENET_STD) / 255, [0.229, 0.224, 0.225], rtol=1e-12)


def test_the_law_is_a_product_with_the_reciprocal_in_float32() -> None:
    mean, std = np.array(IMAGENET_MEAN, np.float32), np.array(IMAGENET_STD, np.float32)

    got = ops.normalize(IMAGE, IMAGENET_MEAN, IMAGENET_STD)

    np.testing.assert_array_equal(got, (IMAGE.astype(np.float32) - mean) * (np.float32(1) / std))


def test_equal_parameters_make_equal_ops_however_they_are_written() -> None:
    assert Normalize(np.array([1, 2, 3], np.float64), [4, 5, 6]) == Normalize((1, 2, 3), (4.0, 5.0, 6.0))  # type: ignore[arg-type]
    assert Normalize(1, np.float64(2)) == Normalize(1.0, 2.0)


def test_tracing_keeps_the_layout_and_gives_float32() -> None:
    traced = trace(lambda x: ops.normalize(x, 1, 2), flatten(0)[1], [TensorSpec((None, None, 3), "uint8", "HWC")])

    assert traced is not None
    assert traced.outputs[0].spec == TensorSpec((None, None, 3), "float32", "HWC")


def of(spec: TensorSpec, mean: Any = 1) -> TensorSpec:
    return Normalize(mean, 1).infer(spec)


test_mistakes_name_what_is_needed = refused(
    (SpecError, "needs std above 0", lambda: ops.normalize(IMAGE, 0, 0)),
    (SpecError, "needs std above 0", lambda: ops.normalize(IMAGE, 0, (1, -1, 1))),
    (SpecError, "std above 0", lambda: ops.normalize(IMAGE, 0.0, 1e-46)),  # is nothing in float32
    (SpecError, "finite number for mean", lambda: ops.normalize(IMAGE, float("nan"), 1)),
    (PlanTypeError, "needs a number for mean", lambda: ops.normalize(IMAGE, "x", 1)),  # type: ignore[arg-type]
    (PlanError, 'needs layout "HWC" or "CHW"', lambda: ops.normalize(IMAGE, 0, 1, layout="CWH")),  # type: ignore[arg-type]
    (SpecError, "2 channels, as many as mean and std have, got", lambda: of(TensorSpec((4, 4, 3), "uint8"), (1, 2))),
    (SpecError, "add a channel axis", lambda: of(TensorSpec((4, 4), "uint8"))),
    (SpecError, r"float64\[4,4,3\]{HWC}; convert it first with", lambda: of(TensorSpec((4, 4, 3), "float64"))),
    (SpecError, r"move the channels with ops\.transpose", lambda: of(TensorSpec((3, 4, 4), "uint8", "CHW"))),
    (SpecError, "decode it first", lambda: of(TensorSpec((), bytes))),
)
