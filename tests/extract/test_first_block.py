"""The mean of a JPEG's first block, read from its bytes, is that of the decoded image; damage is never an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpupipe.extract.images.decode import decode
from gpupipe.extract.images.first_block import mean_of_first_block
from gpupipe.graph.op import Array
from gpupipe.ops._shared.samples import encoded, noise, picture

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
        array: Any = np.frombuffer(data, np.uint8)
        for other in (array.astype(np.int8), np.repeat(array, 2)[::2], memoryview(array), bytearray(data)):
            assert mean_of_first_block(other) == mean
        assert np.clip(mean, 0, 255) == pytest.approx((block @ WEIGHTS).mean(), abs=2)


@pytest.mark.parametrize("data", [encoded(picture(16, 16), form) for form in ("PNG", "BMP", "WEBP")] + [b"", b"\xff"])
def test_of_what_is_no_jpeg_nothing_is_known(data: bytes) -> None:
    assert mean_of_first_block(data) is None


def test_colours_by_adobes_segment_are_not_read() -> None:
    assert mean_of_first_block(encoded(picture(16, 16), mode="CMYK")) is None


@pytest.mark.parametrize("quality", [5, 10, 20])
def test_where_the_first_scan_drops_too_much_nothing_is_known(quality: int) -> None:
    assert mean_of_first_block(encoded(picture(16, 16), quality=quality, progressive=True)) is None
    assert mean_of_first_block(encoded(picture(16, 16), quality=quality)) is not None


def test_components_called_r_g_b_are_no_gray() -> None:
    data = encoded(picture(16, 16))
    frame = data.index(b"\xff\xc0")
    renamed = bytearray(data)
    for place, letter in zip((frame + 10, frame + 13, frame + 16), b"RGB", strict=True):
        renamed[place] = letter
    scan = data.index(b"\xff\xda")
    for place, letter in zip((scan + 5, scan + 7, scan + 9), b"RGB", strict=True):
        renamed[place] = letter

    assert mean_of_first_block(data) is not None
    assert mean_of_first_block(bytes(renamed)) is None


def test_segments_full_of_tables_are_not_walked_to_their_end() -> None:
    data = encoded(picture(16, 16))
    tables = data.index(b"\xff\xc4")
    many = b"\xff\xc4" + (2 + 17 * 3000).to_bytes(2, "big") + bytes(17 * 3000)

    scan = data.index(b"\xff\xda")

    assert mean_of_first_block(data[:scan] + many + data[scan:]) is None
    # Of several tables the last count, so these are not looked at.
    assert mean_of_first_block(data[:tables] + many + data[tables:]) == mean_of_first_block(data)


@pytest.mark.parametrize("kind", KINDS[:5], ids=str)
def test_damage_is_no_error(kind: dict[str, Any]) -> None:
    data = encoded(picture(16, 16), **kind)
    rng = np.random.default_rng(3)

    for end in range(len(data)):
        mean_of_first_block(data[:end])
    for _ in range(1000):
        damaged = bytearray(data)
        for place in rng.integers(0, len(data), 3).tolist():
            damaged[place] = int(rng.integers(0, 256))
        found = mean_of_first_block(memoryview(damaged))
        assert found is None or np.isfinite(found)
