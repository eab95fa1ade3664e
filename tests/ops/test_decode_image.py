"""decode_png and decode_image against Pillow and TensorFlow."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gpupipe import ops
from gpupipe.errors import DecodeError, SpecError
from gpupipe.ops._shared.samples import encoded, picture

COLOURS, GRAY, CLEAR = picture(29, 37), picture(29, 37, 1), picture(13, 11, 4)


def palette(*, transparent: bool) -> bytes:
    """A PNG with 16 colours, one of them transparent or not."""
    out = io.BytesIO()
    Image.fromarray(COLOURS).quantize(16).save(out, "PNG", **({"transparency": 3} if transparent else {}))
    return out.getvalue()


PNGS = {
    "rgb": encoded(COLOURS, "PNG"),
    "gray": encoded(GRAY, "PNG"),
    "rgba": encoded(CLEAR, "PNG"),
    "gray with alpha": encoded(CLEAR, "PNG", mode="LA"),
    "palette": palette(transparent=False),
    "transparent palette": palette(transparent=True),
    "black and white": encoded(COLOURS, "PNG", mode="1"),
}


@pytest.mark.tf
@pytest.mark.parametrize("channels", [0, 3, 4])
@pytest.mark.parametrize("data", PNGS.values(), ids=PNGS)
def test_a_png_is_tensorflows(data: bytes, channels: int, tf: Any) -> None:
    expected = tf.io.decode_png(data, channels=channels).numpy()
    if channels == 4 and expected[:, :, 3].min() == expected[:, :, 3].max():
        expected[:, :, 3] = 255  # of less than 8 bits a pixel TensorFlow fills alpha with 2**bits - 1

    np.testing.assert_array_equal(ops.decode_png(data, channels=channels), expected)
    np.testing.assert_array_equal(ops.decode_image(data, channels=channels), expected)


@pytest.mark.parametrize(("format", "options"), [("PNG", {}), ("BMP", {}), ("WEBP", {"lossless": True}), ("TIFF", {})])
def test_lossless_formats_give_back_the_pixels(format: str, options: dict[str, Any]) -> None:
    np.testing.assert_array_equal(ops.decode_image(encoded(COLOURS, format, **options)), COLOURS)
    np.testing.assert_array_equal(ops.decode_image(encoded(COLOURS, format, **options), channels=3), COLOURS)


def test_transparency_is_dropped_not_blended() -> None:
    np.testing.assert_array_equal(ops.decode_png(PNGS["rgba"], channels=3), CLEAR[:, :, :3])
    np.testing.assert_array_equal(ops.decode_png(PNGS["rgba"], channels=4), CLEAR)


@pytest.mark.parametrize("channels", [0, 1, 3, 4])
def test_of_sixteen_bits_the_upper_eight_are_taken(channels: int) -> None:
    deep = np.array([[0, 128, 129, 257], [32767, 32896, 65406, 65535]], np.uint16)
    expected = np.array([[0, 0, 0, 1], [127, 128, 255, 255]], np.uint8)

    image = ops.decode_png(encoded(deep[:, :, None], "PNG"), channels=channels)

    assert image.shape == (2, 4, channels or 1)
    np.testing.assert_array_equal(image[:, :, 0], expected)
    if channels == 4:
        assert (image[:, :, 3] == 255).all()


def test_gray_of_colours_is_pillows() -> None:
    expected = np.asarray(Image.fromarray(COLOURS).convert("L"))

    np.testing.assert_array_equal(ops.decode_image(PNGS["rgb"], channels=1)[:, :, 0], expected)


def test_samples_of_32_bits_are_a_data_error() -> None:
    out = io.BytesIO()
    Image.fromarray(np.zeros((3, 4), np.float32)).save(out, "TIFF")

    with pytest.raises(DecodeError, match="8 or 16 bits"):
        ops.decode_image(out.getvalue(), channels=3)


@pytest.mark.parametrize("keep", [60, 200, -8])
def test_a_cut_png_is_a_data_error(keep: int) -> None:
    with pytest.raises(DecodeError):
        ops.decode_png(PNGS["rgb"][:keep], channels=3)


def test_damaged_png_data_is_a_data_error() -> None:
    data = bytearray(PNGS["rgb"])
    at = data.index(b"IDAT") + 20
    data[at : at + 40] = bytes(40)

    with pytest.raises(DecodeError, match="damaged PNG: the checksum of its IDAT"):
        ops.decode_png(bytes(data), channels=3)


def test_animations_are_refused() -> None:
    with pytest.raises(SpecError, match="expand_animations=False"):
        ops.decode_image(PNGS["rgb"], expand_animations=True)
    with pytest.raises(DecodeError, match="a GIF"):
        ops.decode_image(encoded(COLOURS, "GIF"), channels=3)


@pytest.mark.parametrize("function", [ops.decode_png, ops.decode_image])
def test_other_channels_are_refused(function: Any) -> None:
    with pytest.raises(SpecError, match="needs channels from 0, 1, 3, 4, got 2"):
        function(PNGS["rgb"], channels=2)


def test_header_shape_needs_no_pixels() -> None:
    data = encoded(picture(9, 14), orientation=6)

    np.testing.assert_array_equal(ops.extract_jpeg_shape(data[:-40]), np.array([9, 14, 3], np.int32))
    np.testing.assert_array_equal(ops.extract_jpeg_shape(data, exif_orientation=True), np.array([14, 9, 3], np.int32))
    assert ops.extract_jpeg_shape(data).dtype == np.int32


@pytest.mark.tf
def test_header_shape_is_tensorflows(tf: Any) -> None:
    for image in (picture(29, 37), picture(5, 300, 1)):
        data = encoded(image)

        np.testing.assert_array_equal(ops.extract_jpeg_shape(data), tf.io.extract_jpeg_shape(data).numpy())
