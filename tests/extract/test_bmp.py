"""Plain BMPs: written and read here as Pillow, OpenCV and TensorFlow do, whole and in windows, damaged or not."""

from __future__ import annotations

import io
import struct
import time
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import DecodeError
from gpupipe.extract.images.bmp import as_bmp, is_ordinary, plain_bmp
from gpupipe.extract.images.decode import Window, decode
from gpupipe.extract.images.headers import ImageHeader, check_complete, read_header
from gpupipe.graph.op import Array
from gpupipe.ops._shared.samples import encoded
from gpupipe.transform.machine import has_dali
from tests.chains.data import on

SIZES = [(1, 1), (7, 1), (1, 2), (3, 3), (5, 4), (64, 85)]
EDGES = (0, 1, 2, 3, 8, 16, 24, 32, 40, 54, 56, 255, 256, 257, 1078, 1 << 16, 1 << 24, 0x7FFFFFFF, 1 << 31, 0xFF000000)
FIELDS = {2: "I", 6: "H", 8: "H", 10: "I", 14: "I", 18: "I", 22: "I", 26: "H", 28: "H", 30: "I", 34: "I", 46: "I"}
WINDOWS = (None, Window(2, 1, 3, 2), Window(-2, 0, 5, 9), Window(0, 5, 0, 2), Window(90, 90, 5, 5))


def pixels(height: int, width: int, channels: int) -> Array:
    """Random pixels."""
    return np.random.default_rng((height, width)).integers(0, 256, (height, width, channels), np.uint8)


def by_pillow(image: Array) -> bytes:
    return encoded(image, "BMP")


def downwards(data: bytes) -> bytes:
    """A BMP that says that its top row is stored first."""
    (height,) = struct.unpack_from("<i", data, 22)
    return data[:22] + struct.pack("<i", -height) + data[26:]


def without_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Pillow read every BMP."""
    for module in ("headers", "decode"):
        monkeypatch.setattr(f"gpupipe.extract.images.{module}.plain_bmp", lambda _: None)


def tried(data: bytes, channels: int, window: Window | None, dtype: str = "uint8") -> Any:
    """The header and the pixels, or why there are none."""
    try:
        header = read_header(data)
        image = decode(data, channels, window=window, dtype=dtype)
    except DecodeError as error:
        return error.reason
    return header, image.dtype.name, image.shape, image.tobytes()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_bmp_is_read_by_all(size: tuple[int, int], channels: int) -> None:
    image = pixels(*size, channels)
    data = as_bmp(image)

    assert is_ordinary(data, False)
    assert is_ordinary(by_pillow(image), False)
    with Image.open(io.BytesIO(data)) as opened:
        np.testing.assert_array_equal(np.asarray(opened).reshape(image.shape), image)
    for written in (data, by_pillow(image)):
        np.testing.assert_array_equal(decode(written, 0), image)
        np.testing.assert_array_equal(decode(written, 3), np.broadcast_to(image, (*size, 3)))


@pytest.mark.parametrize("channels", [1, 3])
def test_a_plain_bmp_is_read_without_pillow(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pixels(20, 31, channels)
    monkeypatch.setattr("gpupipe.extract.images.headers.opened", None)
    monkeypatch.setattr("gpupipe.extract.images.decode.opened", None)

    for data in (as_bmp(image), downwards(as_bmp(image[::-1])), as_bmp(image) + b"more"):
        header = read_header(data, orientation=True)
        assert header == ImageHeader("bmp", 20, 31, channels)
        check_complete(data, header)
        for buffer in (data, bytearray(data), memoryview(data)):
            window = Window(3, 4, 9, 13)
            got = decode(buffer, 0, window=window)
            np.testing.assert_array_equal(got, image[window.rows, window.columns])
            got[:] = 0  # a copy
            np.testing.assert_array_equal(decode(buffer, 0), image)


@pytest.mark.parametrize("channels", [1, 3])
def test_damaged_bmps_give_the_pixels_and_errors_of_pillow(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(channels)
    whole = by_pillow(pixels(9, 6, channels))
    cases = [(damaged(whole, rng), int(rng.choice((0, 1, 3, 4))), int(rng.integers(len(WINDOWS)))) for _ in range(1000)]
    cases += [(as_bmp(pixels(2, 3, channels))[:n], 3, 0) for n in range(0, 1090, 7)]
    cases += [(with_field(whole, at, value), 0, 1) for at in FIELDS for value in EDGES]
    started = time.process_time()
    plain = [plain_bmp(data) is not None for data, _, _ in cases]
    found = [tried(data, shown, WINDOWS[window]) for data, shown, window in cases]
    assert time.process_time() - started < 30

    without_plain(monkeypatch)
    for (data, shown, window), mine in zip(cases, found, strict=True):
        assert tried(data, shown, WINDOWS[window]) == mine, data[:54].hex()
    assert 100 < sum(plain) < 1500


def with_field(data: bytes, at: int, value: int) -> bytes:
    """A BMP with another number at a place of its header."""
    size = {"I": 4, "H": 2}[FIELDS[at]]
    return data[:at] + (value % (1 << 8 * size)).to_bytes(size, "little") + data[at + size :]


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Change one to three things: a field, a byte, the end."""
    out = data
    for _ in range(rng.integers(1, 4)):
        kind = rng.integers(6)
        if kind < 2:
            at = int(rng.choice(list(FIELDS)))
            near = int.from_bytes(out[at : at + 2], "little") + int(rng.integers(-2, 3))
            out = with_field(out, at, near if kind else int(rng.choice(EDGES)))
        elif kind < 5:
            at = int(rng.integers(54 if kind < 4 else len(out)))
            out = out[:at] + rng.bytes(1) + out[at + 1 :]
        else:
            out = out[: -int(rng.integers(1, 9))] if rng.integers(2) else out + bytes(3)
    return out


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_every_window_and_dtype_is_pillows(window: Window | None, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [(make(pixels(9, 6, n)), shown) for n in (1, 3) for shown in (0, 1, 3, 4) for make in (as_bmp, by_pillow)]
    found = [tried(data, shown, window, dtype) for data, shown in cases]

    without_plain(monkeypatch)
    assert [tried(data, shown, window, dtype) for data, shown in cases] == found


def test_sides_that_pillow_bounds_are_left_to_it() -> None:
    row = bytes(1_000_004)
    head = as_bmp(pixels(1, 1, 1))[:1078]
    for width, plain in ((1_000_000, True), (1_000_001, False)):
        assert (plain_bmp(head[:18] + struct.pack("<i", width) + head[22:] + row) is not None) == plain


@pytest.mark.skipif(not has_dali(), reason="DALI is not installed")
def test_dali_gives_the_pixels_of_damaged_bmps_that_it_is_handed() -> None:
    rng = np.random.default_rng(3)
    files = [damaged(make(pixels(9, 6, n)), rng) for _ in range(200) for n in (1, 3) for make in (as_bmp, by_pillow)]
    handed = [data for data in files if is_ordinary(data, False)]
    chain = gp.Dataset.from_tensor_slices(handed).map(lambda data: ops.decode_image(data, channels=3))

    images = list(chain.with_options(on("dali")))

    assert 30 < len(handed) == len(images) < 400
    for data, image in zip(handed, images, strict=True):
        np.testing.assert_array_equal(np.asarray(image), decode(data))
