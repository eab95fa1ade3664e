"""as_torch says at once that images have their channels last, before a Conv2d refuses them."""

from __future__ import annotations

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops

IMAGES = np.zeros((4, 9, 8, 3), np.uint8)


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_channels_last_are_logged_once(layout: str, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("torch")
    images = gp.Dataset.from_tensor_slices(IMAGES).map(lambda x: ops.resize(x, (7, 6)))
    dataset = (images.map(ops.transpose) if layout == "CHW" else images).batch(2)

    for _ in range(2):
        (first, _) = dataset.as_torch()

    assert tuple(first.shape) == ((2, 3, 7, 6) if layout == "CHW" else (2, 7, 6, 3))
    said = [record.message for record in caplog.records if "channels last" in record.message]
    assert len(said) == (layout == "HWC")
