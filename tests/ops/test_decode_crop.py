"""decode_and_crop_jpeg, and what its fused op says, whose pixels tests/conformance/test_fused.py compares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpupipe import ops
from gpupipe.errors import PlanTypeError, ShapeError, SpecError
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.decode_crop import DecodeCrop
from gpupipe.ops._shared.reverse import Reverse
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.ops.crop_to_bounding_box import CropToBoundingBox
from gpupipe.ops.decode_jpeg import DecodeJpeg
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

DATA = encoded(picture(45, 60), quality=85, subsampling=2, orientation=6)
STARTS = np.array([[0, 0], [21, 24], [7, 3], [20, 1]], np.int32)  # the first and the last place, and odd ones
SHAPES = np.array([[24, 21], [24, 21], [1, 1], [13, 20]], np.int32)


def test_only_decoders_and_crops_inside_the_image_fuse() -> None:
    assert DecodeCrop.of(DecodeJpeg(3), Crop(pad=True)) is None
    assert DecodeCrop.of(Reverse(), Crop()) is None


def test_sizes_and_spec_are_those_of_the_crop() -> None:
    op = DecodeCrop(DecodeJpeg(3, True), Crop(24, 21))

    assert op.exif_orientation
    assert op.infer(TensorSpec((), bytes)) == TensorSpec((24, 21, 3), "uint8", "HWC")
    np.testing.assert_array_equal(op.size(np.full((4, 2), 99), STARTS, SHAPES), SHAPES)


def test_decode_and_crop_is_a_slice_of_the_image() -> None:
    whole = ops.decode_jpeg(DATA)

    for window in ((3, 4, 20, 30), [0, 0, 45, 60], np.array([44, 59, 1, 1])):
        y, x, h, w = window
        np.testing.assert_array_equal(ops.decode_and_crop_jpeg(DATA, window), whole[y : y + h, x : x + w])


@pytest.mark.tf
def test_tensorflow_agrees_inside_the_window(tf: Any) -> None:
    expected = tf.io.decode_and_crop_jpeg(DATA, [3, 4, 30, 40], dct_method="INTEGER_ACCURATE").numpy()

    got = ops.decode_and_crop_jpeg(DATA, (3, 4, 30, 40))

    # At the border TensorFlow upsamples the colours without what lies outside.
    np.testing.assert_array_equal(got[2:-2, 2:-2], expected[2:-2, 2:-2])


def test_windows_that_leave_the_image_name_their_rows() -> None:
    op = CropToBoundingBox(np.array([6, 5]), 0, 40, 10)

    with pytest.raises(ShapeError, match=r"got 40x10 at \(6, 0\) of an image of 45x60") as caught:
        op.draw(BatchRng(0, 0, np.zeros(2, np.uint64)), np.array([[45, 60]] * 2))

    assert getattr(caught.value, "rows", None) == (0,)


def test_windows_that_cannot_exist_are_refused() -> None:
    with pytest.raises(SpecError, match="target_height"):
        ops.decode_and_crop_jpeg(DATA, (0, 0, 0, 10))
    with pytest.raises(PlanTypeError, match="crop_window as"):
        ops.decode_and_crop_jpeg(DATA, (0, 0, 5))
