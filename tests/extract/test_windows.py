"""Decoding only a window of a JPEG, or its upper rows, gives the pixels of the whole image, damaged or not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from gpupipe.errors import DecodeError
from gpupipe.extract.images import region
from gpupipe.extract.images.decode import Dct, Window, decode
from gpupipe.extract.images.jpeg import of_upper_rows
from gpupipe.graph.op import Array
from gpupipe.ops._shared.samples import encoded, noise, picture

WAYS: dict[str, dict[str, Any]] = {
    "4:4:4": {"subsampling": 0},
    "4:2:2": {"subsampling": 1},
    "4:2:0": {"subsampling": 2},
    "optimised": {"optimize": True, "quality": 30},
}


DECODERS = [
    "simplejpeg",
    pytest.param("nvImageCodec", marks=pytest.mark.skipif(not region.region_decoder(), reason="needs nvImageCodec")),
]


@pytest.fixture(params=DECODERS)
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Decoding windows with one decoder, whichever are installed."""
    if request.param == "simplejpeg":
        monkeypatch.setattr("gpupipe.extract.images.decode.decode_region", lambda *_: None)
    return str(request.param)


def tried(data: bytes, channels: int, window: Window | None) -> Array | None:
    """The image or its window, None if it cannot be decoded."""
    try:
        return decode(data, channels, window=window)
    except DecodeError:
        return None


def assert_window_of(whole: Array, data: bytes, channels: int, window: Window) -> None:
    """Compare a window with that of the whole image."""
    np.testing.assert_array_equal(decode(data, channels, window=window), whole[window.rows, window.columns])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stored", [1, 3])
@pytest.mark.usefixtures("decoder")
def test_a_window_is_that_of_the_whole_image(way: str, stored: int, channels: int) -> None:
    data = encoded(noise(131, 53, stored), **WAYS[way])
    whole = decode(data, channels)
    rng = np.random.default_rng(0)

    for end in range(1, 132, 3):
        top, left = int(rng.integers(end)), int(rng.integers(53))
        assert_window_of(whole, data, channels, Window(top, left, end - top, int(rng.integers(1, 54 - left))))


@pytest.mark.usefixtures("decoder")
def test_a_window_that_is_not_inside_the_image_is_cut_off() -> None:
    data = encoded(noise(131, 53))
    whole = decode(data)

    for window in (Window(100, 0, 60, 53), Window(0, 40, 9, 60), Window(5, 5, 0, 9), Window(5, 5, 9, 0)):
        assert_window_of(whole, data, 3, window)


@pytest.mark.parametrize(
    "data",
    [
        encoded(picture(131, 53), progressive=True),
        encoded(picture(131, 53), restart_marker_rows=1),
        encoded(picture(131, 53), mode="CMYK"),
        encoded(picture(131, 53), "PNG"),
        encoded(picture(131, 53), "WEBP"),
        encoded(picture(131, 53), orientation=6),
    ],
    ids=["progressive", "with restarts", "four channels", "png", "webp", "turned"],
)
@pytest.mark.parametrize("upright", [False, True])
@pytest.mark.usefixtures("decoder")
def test_a_window_of_images_that_are_stored_in_other_ways(data: bytes, upright: bool) -> None:
    window = Window(9, 20, 30, 31)

    got = decode(data, 3, upright, window=window)

    np.testing.assert_array_equal(got, decode(data, 3, upright)[window.rows, window.columns])


WHOLE = Window(0, 0, 131, 53)
REFUSED: dict[str, tuple[Callable[[bytes], bytes], Window, int]] = {
    "beyond the right": (bytes, Window(0, 40, 10, 14), 1 << 20),
    "beyond the bottom": (bytes, Window(120, 0, 12, 10), 1 << 20),
    "before the top": (bytes, Window(-1, 0, 10, 10), 1 << 20),
    "before the left": (bytes, Window(0, -1, 10, 10), 1 << 20),
    "empty": (bytes, Window(3, 3, 0, 5), 1 << 20),
    "too many pixels": (bytes, WHOLE, 131 * 53 - 1),
    "without its end": (lambda data: data[:-1] + b"\0", WHOLE, 1 << 20),
    "of 12 bits": (lambda data: data.replace(b"\xff\xc0\0\x11\x08", b"\xff\xc0\0\x11\x0c"), WHOLE, 1 << 20),
    "arithmetic": (lambda data: data.replace(b"\xff\xc0", b"\xff\xc9"), WHOLE, 1 << 20),
}


@pytest.mark.parametrize(("change", "window", "most"), REFUSED.values(), ids=REFUSED)
def test_the_region_decoder_is_asked_for_windows_inside_of_images_that_pass_all_checks(
    change: Callable[[bytes], bytes], window: Window, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, asked = encoded(noise(131, 53)), []
    monkeypatch.setattr("gpupipe.extract.images.decode.decode_region", lambda *args: asked.append(args))

    with suppress(DecodeError):
        decode(change(data), most_pixels=most, window=window)

    assert not asked
    decode(data, most_pixels=131 * 53, window=WHOLE)
    assert len(asked) == 1


@pytest.mark.parametrize("at", range(0, 600, 39))
@pytest.mark.usefixtures("decoder")
def test_damage_gives_the_pixels_of_the_whole_image_or_the_same_failure(at: int) -> None:
    data = bytearray(encoded(noise(131, 53), quality=60))
    scan = data.index(b"\xff\xda") + 14
    rng = np.random.default_rng(at)
    for _ in range(2):
        data[scan + int(rng.integers(len(data) - scan - 2))] = int(rng.integers(256))
    window = Window(9, 7, 31, 40)
    whole, part = tried(bytes(data), 3, None), tried(bytes(data), 3, window)

    assert (whole is None) == (part is None)
    if whole is not None and part is not None:
        np.testing.assert_array_equal(part, whole[window.rows, window.columns])


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


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ratio", [2, 4, 8])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_window_of_a_smaller_image_is_that_of_the_whole_one(way: str, ratio: int, channels: int) -> None:
    data = encoded(noise(331, 83), **WAYS[way])
    whole = decode(data, channels, dct=Dct(ratio))
    rows, columns = whole.shape[:2]

    for end in range(1, rows + 1, 3):
        window = Window(end // 2, columns // 3, end - end // 2, columns)
        part = decode(data, channels, dct=Dct(ratio), window=window)

        np.testing.assert_array_equal(part, whole[window.rows, window.columns])
