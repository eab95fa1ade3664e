"""The mean of a JPEG's first block, read from its bytes, is that of the decoded image; damage is never an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpupipe.extract.decode import decode
from gpupipe.extract.first_block import mean_of_first_block
from gpupipe.op import Array
from gpupipe.ops.samples import encoded, noise, picture

WEIGHTS = np.array([0.299, 0.587, 0.114])
KINDS: list[dict[str, Any]] = [
    {"quality": 30},
    {"quality": 75, "subsampling": 2},
    {"quality": 99, "subsampling": 1},
    {"quality": 90, "optimize": True},
    {"quality": 90, "progressive": True},
    {"quality": 60, "progressive": True, "subsampling": 2},
    {"quality": 90, "mode": "L"},
    {"quality": 90, "restart_marker_blocks": 1},
    {"quality": 90, "orientation": 6},
]


def images() -> list[Array]:
    """Blocks of every brightness."""
    levels = [np.full((16, 24, 3), level, np.uint8) for level in (0, 1, 7, 100, 127, 128, 129, 200, 254, 255)]
    return [*levels, picture(29, 37), picture(64, 48) // 3, 100 + picture(20, 20) // 3, 60 + noise(24, 24) // 4]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_it_is_the_mean_of_the_decoded_pixels(kind: dict[str, Any]) -> None:
    for image in images():
        data = encoded(image, **kind)
        block = decode(data, 3)[:8, :8]

        mean = mean_of_first_block(data)

        assert mean is not None
        assert np.clip(mean, 0, 255) == pytest.approx((block @ WEIGHTS).mean(), abs=2)


@pytest.mark.parametrize("data", [encoded(picture(16, 16), form) for form in ("PNG", "BMP", "WEBP")] + [b"", b"\xff"])
def test_of_what_is_no_jpeg_nothing_is_known(data: bytes) -> None:
    assert mean_of_first_block(data) is None


def test_colours_by_adobes_segment_are_not_read() -> None:
    assert mean_of_first_block(encoded(picture(16, 16), mode="CMYK")) is None


@pytest.mark.parametrize("kind", KINDS[:5], ids=str)
def test_damage_is_no_error(kind: dict[str, Any]) -> None:
    data = encoded(picture(16, 16), **kind)
    rng = np.random.default_rng(3)

    for end in range(len(data)):
        mean_of_first_block(data[:end])
    for _ in range(3000):
        damaged = bytearray(data)
        for place in rng.integers(0, len(data), 3).tolist():
            damaged[place] = int(rng.integers(0, 256))
        found = mean_of_first_block(memoryview(damaged))
        assert found is None or np.isfinite(found)
