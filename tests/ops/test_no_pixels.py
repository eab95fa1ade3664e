"""Images without pixels: what DALI would end the process for is an error of the element, alike on every executor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, Options, ops
from gpupipe.errors import ShapeError
from gpupipe.transform.machine import has_dali, has_fast

BACKENDS = ["numpy"] + ["fast"] * has_fast() + ["dali"] * has_dali()

OPS: dict[str, Callable[[Any], Any]] = {
    "crop_and_resize": lambda x: ops.crop_and_resize(x, [[0, 0, 1, 1]], 4),
    "elastic": lambda x: ops.elastic(x),
    "gaussian_blur": lambda x: ops.gaussian_blur(x, 3),
    "random_gaussian_blur": lambda x: ops.random_gaussian_blur(x, 3),
    "random_shortest_size": lambda x: ops.random_shortest_size(x, 4),
    "scale_jitter": lambda x: ops.scale_jitter(x, (4, 4)),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", OPS)
def test_an_image_without_pixels_is_an_error_of_its_element(name: str, backend: Any) -> None:
    images = Dataset.from_generator(lambda: iter([np.ones((6, 5, 3), np.uint8), np.ones((0, 5, 3), np.uint8)]))
    ds = images.map(OPS[name]).with_options(Options(device="cpu", backend=backend))

    with pytest.raises(ShapeError, match=rf"index 1: .*: {name} needs images with pixels, got one of 0x5"):
        list(ds)
    assert len(list(ds.with_options(Options(on_error="skip")))) == 1
