"""Decoding to uint16 and float32, in full and as TensorFlow scales it."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import DecodeError, SpecError
from gpupipe.ops._shared.samples import encoded, picture
from tests.chains.data import on
from tests.conformance.harness import EXECUTORS
from tests.ops.png_files import Array, chunk, packed_gray, png


def deep(channels: int, height: int = 23, width: int = 37) -> Array:
    """Random samples of 16 bits, whose last row is not zero."""
    rng = np.random.default_rng(channels)
    return rng.integers(1, 65536, (height, width, channels)).astype(np.uint16)


FILES = {
    **{f"16 bits, {channels} channels": png(deep(channels)) for channels in (1, 2, 3, 4)},
    **{f"16 bits, {channels} channels, interlaced": png(deep(channels), interlaced=True) for channels in (1, 2, 3, 4)},
    "8 bits": png(picture(23, 37)),
    "8 bits, alpha": png(picture(23, 37, 4)),
    "8 bits, gray": png(picture(23, 37, 1)),
    "4 bits, gray": packed_gray(picture(23, 37, 1)[:, :, 0] >> 4, 4),
    "palette": encoded(picture(23, 37), "PNG", mode="P"),
    "16 bits, one gray transparent": png(deep(1), extra=chunk(b"tRNS", struct.pack(">H", deep(1)[3, 4, 0]))),
    "16 bits, one colour transparent": png(deep(3), extra=chunk(b"tRNS", struct.pack(">3H", *deep(3)[3, 4]))),
}


@pytest.mark.tf
@pytest.mark.parametrize("channels", [0, 3, 4])
@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_a_png_as_uint16_is_tensorflows(data: bytes, channels: int, tf: Any) -> None:
    expected = tf.io.decode_png(data, channels=channels, dtype=tf.uint16).numpy()
    if channels == 4 and expected[:, :, 3].min() == expected[:, :, 3].max() < 65535:
        expected[:, :, 3] = 65535  # of less than 8 bits a pixel TensorFlow fills alpha with 2**bits - 1

    got = ops.decode_png(data, channels, "uint16")

    assert got.dtype == np.uint16
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(ops.decode_image(data, channels, np.uint16), expected)


@pytest.mark.tf
@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_a_png_as_float32_is_tensorflows(data: bytes, tf: Any) -> None:
    expected = tf.io.decode_image(data, channels=3, dtype=tf.float32).numpy()

    np.testing.assert_array_equal(ops.decode_image(data, channels=3, dtype="float32"), expected)


@pytest.mark.tf
@pytest.mark.parametrize("format", ["JPEG", "BMP"])
@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_other_formats_are_scaled_as_in_tensorflow(format: str, dtype: str, tf: Any) -> None:
    flat = np.kron(picture(2, 3, 1), np.ones((8, 8, 1), np.uint8))  # blocks that every inverse transform gives alike
    data = encoded(flat, format)
    expected = tf.io.decode_image(data, channels=3, dtype=dtype).numpy()

    np.testing.assert_array_equal(ops.decode_image(data, channels=3, dtype=dtype), expected)


def test_gray_of_16_bits_has_pillows_weights() -> None:
    image = picture(9, 14).astype(np.uint16) * np.uint16(257)
    expected = np.asarray(Image.fromarray(picture(9, 14)).convert("L"), np.uint16)

    got = ops.decode_png(png(image), channels=1, dtype="uint16")[:, :, 0]

    assert abs(got / 257 - expected).max() <= 0.5 + 1e-3  # Pillow rounds to 8 bits
    weighed = np.dot(deep(3).astype(np.int64), np.array([19595, 38470, 7471]))
    np.testing.assert_array_equal(ops.decode_png(png(deep(3)), 1, "uint16")[:, :, 0], (weighed + 32768) >> 16)
    white = np.full((2, 2, 3), 65535, np.uint16)
    np.testing.assert_array_equal(ops.decode_png(png(white), channels=1, dtype="uint16"), white[:, :, :1])


def test_a_transparent_colour_is_compared_with_all_16_bits() -> None:
    image = np.array([[[300, 301, 302], [300, 301, 303], [5, 6, 7]]], np.uint16)
    data = png(image, extra=chunk(b"tRNS", struct.pack(">3H", 300, 301, 302)))

    np.testing.assert_array_equal(ops.decode_png(data, 4, "uint16")[0, :, 3], [0, 65535, 65535])


@pytest.mark.parametrize("cut", [40, 300, -20])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_a_cut_png_of_16_bits_is_a_data_error(channels: int, cut: int) -> None:
    with pytest.raises(DecodeError, match="truncated"):
        ops.decode_png(png(deep(channels))[:cut], dtype="uint16")


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_missing_rows_of_16_bits_are_a_data_error(channels: int) -> None:
    tall, low = png(deep(channels, 23)), png(deep(channels, 20))
    data = tall[: tall.index(b"IDAT") - 4] + low[low.index(b"IDAT") - 4 :]

    with pytest.raises(DecodeError):
        ops.decode_png(data, dtype="uint16")


def test_a_damaged_chunk_that_no_pixel_needs_does_not_matter() -> None:
    image = deep(3)
    bad = bytearray(chunk(b"pHYs", bytes(9)))
    bad[-1] ^= 1

    np.testing.assert_array_equal(ops.decode_png(png(image, extra=bytes(bad)), dtype="uint16"), image)


@pytest.mark.parametrize("big_endian", [False, True])
def test_a_gray_tiff_of_16_bits_is_decoded_in_full(big_endian: bool) -> None:
    image, out = deep(1), io.BytesIO()
    Image.fromarray(image[:, :, 0]).save(out, "TIFF", big_endian=big_endian)

    np.testing.assert_array_equal(ops.decode_image(out.getvalue(), dtype="uint16"), image)
    np.testing.assert_array_equal(ops.decode_image(out.getvalue()), (image >> 8).astype(np.uint8))


def test_a_tiff_of_floats_is_decoded_as_it_is() -> None:
    image, out = np.linspace(-3e5, 7e9, 35, dtype=np.float32).reshape(5, 7, 1), io.BytesIO()
    Image.fromarray(image[:, :, 0]).save(out, "TIFF")

    np.testing.assert_array_equal(ops.decode_image(out.getvalue(), dtype="float32"), image)
    with pytest.raises(DecodeError, match=r'got float32; decode it with dtype="float32"'):
        ops.decode_image(out.getvalue(), dtype="uint16")
    with pytest.raises(DecodeError, match=r'decode floats with dtype="float32"'):
        ops.decode_image(out.getvalue())


def test_an_orientation_is_applied() -> None:
    image = deep(3)
    block = struct.pack(">4sIHHHIHHI", b"MM\0*", 8, 1, 0x0112, 3, 1, 6, 0, 0)
    data = png(image, extra=chunk(b"eXIf", block))

    np.testing.assert_array_equal(ops.decode_png(data, dtype="uint16", exif_orientation=True), np.rot90(image, -1))
    np.testing.assert_array_equal(ops.decode_png(data, dtype="uint16"), image)


@pytest.mark.parametrize("dtype", ["int16", "float64", None, "rabbit", "float16"])
@pytest.mark.parametrize("function", [ops.decode_png, ops.decode_image])
def test_another_dtype_is_refused(function: Any, dtype: Any) -> None:
    with pytest.raises(SpecError, match=f"needs dtype from uint8, uint16.*, got {dtype!r}"):
        function(FILES["8 bits"], dtype=dtype)


def test_only_decode_image_gives_floats() -> None:
    with pytest.raises(SpecError, match="decode_png needs dtype from uint8, uint16, got 'float32'"):
        ops.decode_png(FILES["8 bits"], dtype="float32")


@pytest.mark.parametrize("kind", EXECUTORS)
def test_a_chain_of_16_bits_gives_the_pixels_of_the_file(kind: str) -> None:
    images = [deep(3), deep(3, 30, 41)]
    ds = gp.Dataset.from_tensor_slices([png(image) for image in images])
    ds = ds.map(
        lambda data: ops.flip_left_right(ops.crop_to_bounding_box(ops.decode_png(data, 3, "uint16"), 2, 3, 16, 20))
    )
    ds = ds.batch(2).with_options(on(kind))

    assert ds.element_spec.dtype == np.uint16
    (batch,) = ds.as_numpy_iterator()

    np.testing.assert_array_equal(np.asarray(batch), np.stack([image[2:18, 3:23][:, ::-1] for image in images]))
