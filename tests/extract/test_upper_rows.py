"""Decoding only the upper rows of a JPEG gives the pixels of the whole image, damaged or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpupipe.errors import DecodeError
from gpupipe.extract.images.decode import decode
from gpupipe.extract.images.jpeg import of_upper_rows
from gpupipe.graph.op import Array
from gpupipe.ops._shared.samples import encoded, noise, picture

WAYS: dict[str, dict[str, Any]] = {
    "4:4:4": {"subsampling": 0},
    "4:2:2": {"subsampling": 1},
    "4:2:0": {"subsampling": 2},
    "optimised": {"optimize": True, "quality": 30},
}


def tried(data: bytes, channels: int, rows: int | None) -> Array | None:
    """The image, None if it cannot be decoded."""
    try:
        return decode(data, channels, rows=rows)
    except DecodeError:
        return None


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stored", [1, 3])
def test_the_upper_rows_are_those_of_the_whole_image(way: str, stored: int, channels: int) -> None:
    data = encoded(noise(131, 53, stored), **WAYS[way])
    whole = decode(data, channels)
    heights = set()

    for rows in range(1, 132):
        upper = decode(data, channels, rows=rows)
        np.testing.assert_array_equal(upper[:rows], whole[:rows])
        heights.add(len(upper))

    assert min(heights) <= 32
    assert max(heights) == 131


@pytest.mark.parametrize(
    "data",
    [
        encoded(picture(131, 53), progressive=True),
        encoded(picture(131, 53), restart_marker_rows=1),
        encoded(picture(131, 53), mode="CMYK"),
        encoded(picture(131, 53), "PNG"),
        encoded(picture(131, 53), "WEBP"),
    ],
    ids=["progressive", "with restarts", "four channels", "png", "webp"],
)
def test_images_that_are_stored_in_another_way_are_decoded_whole(data: bytes) -> None:
    np.testing.assert_array_equal(decode(data, 3, rows=8), decode(data, 3))


def test_an_image_that_is_turned_is_decoded_whole() -> None:
    data = encoded(picture(131, 53), orientation=6)

    assert decode(data, 3, True, rows=8).shape == (53, 131, 3)
    assert decode(data, 3, False, rows=8).shape == (32, 53, 3)  # blocks of 16 rows, and one to spare


@pytest.mark.parametrize("at", range(0, 600, 13))
def test_damage_gives_the_pixels_of_the_whole_image_or_the_same_failure(at: int) -> None:
    data = bytearray(encoded(noise(131, 53), quality=60))
    scan = data.index(b"\xff\xda") + 14
    rng = np.random.default_rng(at)
    for _ in range(2):
        data[scan + int(rng.integers(len(data) - scan - 2))] = int(rng.integers(256))
    whole, upper = tried(bytes(data), 3, None), tried(bytes(data), 3, 40)

    assert (whole is None) == (upper is None)
    if whole is not None and upper is not None:
        np.testing.assert_array_equal(upper[:40], whole[:40])


def test_a_header_that_is_not_one_of_a_plain_jpeg_is_left_alone() -> None:
    data = encoded(noise(131, 53))
    frame, scan = data.index(b"\xff\xc0"), data.index(b"\xff\xda")
    no_sampling = bytearray(data)
    no_sampling[frame + 11 : frame + 20 : 3] = bytes(3)
    assert of_upper_rows(data, 8) is not None

    assert of_upper_rows(data, 120) is None
    assert of_upper_rows(no_sampling, 8) is None
    assert of_upper_rows(data[: frame + 5] + b"\xff\xff" + data[frame + 7 :], 8) is None  # too high for libjpeg
    assert of_upper_rows(data[:scan], 8) is None
    assert of_upper_rows(data[: scan + 6], 8) is None
    assert of_upper_rows(data[:frame] + b"\xff\xc9" + data[frame + 2 :], 8) is None
    assert of_upper_rows(data[: scan + 4] + b"\x01" + data[scan + 5 :], 8) is None
    assert of_upper_rows(data[:scan] + data[frame:scan] + data[scan:], 8) is None
