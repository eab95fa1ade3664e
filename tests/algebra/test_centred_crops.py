"""A centre crop that lies inside every image is cropped while it is normalised; one that may not is padded first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.transform.machine import has_dali

FILES = [encoded(picture(*size), "PNG") for size in ((40, 53), (53, 40), (31, 90), (24, 24))]

# How the image is made before the crop of 20 x 24, and whether it is known to be as large.
CASES: dict[str, tuple[Any, bool]] = {
    "the shorter side is as long": (lambda x: ops.resize_shorter(x, 24), True),
    "the shorter side is longer": (lambda x: ops.resize_shorter(x, 33), True),
    "the shorter side is shorter": (lambda x: ops.resize_shorter(x, 23), False),
    "the longer side is limited": (lambda x: ops.resize_shorter(x, 24, max_size=30), False),
    "a fixed size is as large": (lambda x: ops.resize(x, (20, 24)), True),
    "a fixed size is narrower": (lambda x: ops.resize(x, (20, 23)), False),
    "any size": (lambda x: x, False),
    "a crop of a large image": (lambda x: ops.center_crop(ops.resize_shorter(x, 33), (8, 9)), False),
}


@pytest.mark.parametrize(
    "backend", ["numpy", pytest.param("dali", marks=pytest.mark.skipif(not has_dali(), reason="needs DALI"))]
)
@pytest.mark.parametrize("name", CASES)
def test_a_centre_crop_is_fused_where_no_image_is_smaller(name: str, backend: Any) -> None:
    make, inside = CASES[name]

    def fn(data: Any) -> Any:
        image = ops.center_crop(make(ops.decode_image(data, channels=3)), (20, 24))
        return ops.transpose(ops.normalize(image, 100.0, 50.0))

    ds = gp.Dataset.from_list(FILES).map(fn).batch(4).with_options(gp.Options(backend=backend, device="cpu"))
    apart = ds.with_options(gp.Options(disabled_rules=("fuse_crop_mirror_normalize",)))

    assert ("crop=Crop(height=20, width=24, pad=False)" in str(ds.explain())) == inside
    np.testing.assert_array_equal(next(iter(ds)), next(iter(apart)))
