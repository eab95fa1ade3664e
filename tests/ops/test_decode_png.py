"""decode_png and decode_image: as Pillow and TensorFlow decode, as indices of a palette, and with 16 bits."""

from __future__ import annotations

import functools
import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from gpupipe import Dataset, Options, ops
from gpupipe.errors import DecodeError, SpecError
from gpupipe.extract.images import png as png_reader
from gpupipe.ops._shared.samples import encoded, picture
from tests.ops.png_files import Array, chunk, packed_gray, png
from tests.ops.refusals import refused

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


@pytest.mark.parametrize("keep", [40, 60, 200, -8])
def test_a_cut_png_is_a_data_error(keep: int) -> None:
    with pytest.raises(DecodeError):
        ops.decode_png(PNGS["rgb"][:keep], channels=3)
    with pytest.raises(DecodeError):
        ops.decode_png(indexed(classes(8))[:keep], palette="indices")
    for channels in range(1, 5):
        with pytest.raises(DecodeError, match="truncated"):
            ops.decode_png(png(deep(channels))[:keep], dtype="uint16")


def test_damaged_png_data_is_a_data_error() -> None:
    data = bytearray(PNGS["rgb"])
    at = data.index(b"IDAT") + 20
    data[at : at + 40] = bytes(40)

    with pytest.raises(DecodeError, match="damaged PNG: the checksum of its IDAT"):
        ops.decode_png(bytes(data), channels=3)


def test_animations_are_refused() -> None:
    with pytest.raises(DecodeError, match="a GIF"):
        ops.decode_image(encoded(COLOURS, "GIF"), channels=3)


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


PALETTE = np.random.default_rng(5).integers(0, 256, 768).astype(np.uint8).tobytes()


def classes(bits: int, height: int = 21, width: int = 35) -> Array:
    """Random classes, uint8[H,W], the highest among them; for 8 bits also 255, which marks borders in VOC."""
    mask = np.random.default_rng(bits).integers(0, 1 << bits, (height, width)).astype(np.uint8)
    mask[0, 0] = (1 << bits) - 1
    return mask


def indexed(mask: Array, format: str = "PNG", **options: Any) -> bytes:
    image, out = Image.fromarray(mask), io.BytesIO()
    image = Image.frombytes("P", image.size, mask.tobytes())
    image.putpalette(PALETTE[: 3 << options.get("bits", 8)])
    image.save(out, format, **options)
    return out.getvalue()


@pytest.mark.parametrize("function", [ops.decode_png, ops.decode_image])
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_a_palette_png_gives_its_indices(bits: int, function: Any) -> None:
    mask = classes(bits)
    data = indexed(mask, bits=bits)
    assert (data[24], data[25]) == (bits, 3)

    got = function(data, palette="indices")

    assert got.dtype == np.uint8
    np.testing.assert_array_equal(got, mask[:, :, None])
    np.testing.assert_array_equal(function(data, 1, palette="indices"), got)
    np.testing.assert_array_equal(got[:, :, 0], np.asarray(Image.open(io.BytesIO(data))))


@pytest.mark.parametrize(("format", "options"), [("BMP", {}), ("TIFF", {}), ("TIFF", {"compression": "tiff_lzw"})])
def test_other_formats_with_a_palette_give_their_indices(format: str, options: dict[str, Any]) -> None:
    mask = classes(8)

    np.testing.assert_array_equal(ops.decode_image(indexed(mask, format, **options), palette="indices")[:, :, 0], mask)


def test_transparent_entries_stay_indices() -> None:
    mask = classes(4)

    np.testing.assert_array_equal(ops.decode_png(indexed(mask, transparency=3), palette="indices")[:, :, 0], mask)


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_gray_of_few_bits_is_not_scaled(bits: int) -> None:
    mask = classes(bits)
    data = packed_gray(mask, bits)

    np.testing.assert_array_equal(ops.decode_png(data, palette="indices")[:, :, 0], mask)
    np.testing.assert_array_equal(ops.decode_png(data)[:, :, 0], mask * (255 // ((1 << bits) - 1)))


def test_gray_of_8_and_16_bits_is_as_stored() -> None:
    mask, deep = classes(8), classes(8)[:, :, None].astype(np.uint16) * np.uint16(251)

    np.testing.assert_array_equal(ops.decode_png(encoded(mask[:, :, None], "PNG"), palette="indices")[:, :, 0], mask)
    np.testing.assert_array_equal(ops.decode_png(png(deep), dtype="uint16", palette="indices"), deep)
    with pytest.raises(DecodeError, match=r'indices of 16 bits do not fit uint8; decode them with dtype="uint16"'):
        ops.decode_png(png(deep), palette="indices")


def test_indices_as_uint16_are_not_scaled() -> None:
    got = ops.decode_png(indexed(classes(8)), dtype="uint16", palette="indices")

    assert got.dtype == np.uint16
    np.testing.assert_array_equal(got[:, :, 0], classes(8))


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "BMP"])
def test_an_image_of_colours_has_no_indices(format: str) -> None:
    with pytest.raises(DecodeError, match=f'gray one, is needed for palette="indices", got a {format} of mode RGB'):
        ops.decode_image(encoded(picture(8, 8), format), palette="indices")


def deep(channels: int, height: int = 23, width: int = 37) -> Array:
    """Random samples of 16 bits, whose last row is not zero."""
    rng = np.random.default_rng(channels)
    return rng.integers(1, 65536, (height, width, channels)).astype(np.uint16)


DEEP = {
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
@pytest.mark.parametrize("data", DEEP.values(), ids=DEEP)
def test_a_png_as_uint16_is_tensorflows(data: bytes, channels: int, tf: Any) -> None:
    expected = tf.io.decode_png(data, channels=channels, dtype=tf.uint16).numpy()
    if channels == 4 and expected[:, :, 3].min() == expected[:, :, 3].max() < 65535:
        expected[:, :, 3] = 65535  # of less than 8 bits a pixel TensorFlow fills alpha with 2**bits - 1

    got = ops.decode_png(data, channels, "uint16")

    assert got.dtype == np.uint16
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(ops.decode_image(data, channels, np.uint16), expected)


@pytest.mark.tf
@pytest.mark.parametrize("data", DEEP.values(), ids=DEEP)
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


TURNED = struct.pack(">4sIHHHIHHI", b"MM\0*", 8, 1, 0x0112, 3, 1, 3, 0, 0)  # by 180 degrees: of the same size
RAW = b"\nexif\n%8d\n%b\n%b\n" % (len(TURNED) + 6, b"457869660000", TURNED.hex().encode())
XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="3"/></x:xmpmeta>'
KEY, PACKET = b"Raw profile type exif\0", b"XML:com.adobe.xmp\0"
NO_TAG = struct.pack(">4sIHI", b"MM\0*", 8, 0, 0)
HELD: dict[str, tuple[bytes, bool]] = {
    "eXIf": (chunk(b"eXIf", TURNED), True),
    "tEXt": (chunk(b"tEXt", KEY + RAW), True),
    "zTXt": (chunk(b"zTXt", KEY + b"\0" + zlib.compress(RAW)), True),
    "iTXt": (chunk(b"iTXt", KEY + b"\0\0\0\0" + RAW), True),
    "iTXt, compressed": (chunk(b"iTXt", KEY + b"\1\0en\0key\0" + zlib.compress(RAW)), True),
    "XMP": (chunk(b"iTXt", PACKET + b"\0\0\0\0" + XMP), True),
    "XMP, compressed": (chunk(b"iTXt", PACKET + b"\1\0\0\0" + zlib.compress(XMP)), True),
    "XMP beside EXIF without the tag": (chunk(b"eXIf", NO_TAG) + chunk(b"iTXt", PACKET + b"\0\0\0\0" + XMP), True),
    "a text beside EXIF without the tag": (chunk(b"eXIf", NO_TAG) + chunk(b"tEXt", KEY + RAW), False),
    "another key": (chunk(b"tEXt", b"Raw profile type APP1\0" + RAW), False),
    "no text": (chunk(b"tEXt", KEY), False),
    "a damaged stream": (chunk(b"zTXt", KEY + b"\0nothing"), False),
}
"""The chunks of a PNG, and whether they turn it."""


@pytest.mark.parametrize(("extra", "turns"), HELD.values(), ids=HELD)
@pytest.mark.parametrize("backend", ["numpy", "fast", "dali"])
@pytest.mark.parametrize("decode", [ops.decode_png, ops.decode_jpeg])  # the latter in DALI's graph
def test_an_orientation_is_found_where_pillow_finds_it(decode: Any, extra: bytes, turns: bool, backend: Any) -> None:
    image = deep(3).astype(np.uint8)
    data = png(image, extra=extra)
    np.testing.assert_array_equal(ImageOps.exif_transpose(Image.open(io.BytesIO(data))), np.rot90(image, 2 * turns))

    images = Dataset.from_tensors(data).repeat(2).with_options(Options(device="cpu", backend=backend))
    for wanted, expected in ((True, np.rot90(image, 2 * turns)), (False, image)):
        made = images.map(functools.partial(decode, exif_orientation=wanted)).batch(2)
        np.testing.assert_array_equal(next(iter(made)), [expected] * 2)


def test_of_many_texts_with_a_key_the_last_one_alone_is_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bytes] = []
    text_of = png_reader._text

    def noted(kind: bytes, rest: bytes) -> bytes:
        made.append(kind)
        return text_of(kind, rest)

    monkeypatch.setattr(png_reader, "_text", noted)
    large = chunk(b"zTXt", KEY + b"\0" + zlib.compress(b"\n\n\n" + b"00" * 1000))
    last = chunk(b"zTXt", KEY + b"\0" + zlib.compress(RAW))
    packet = chunk(b"iTXt", PACKET + b"\1\0\0\0" + zlib.compress(XMP))

    for extra, texts in ((large * 50 + last, 1), (packet * 50, 1), (chunk(b"eXIf", TURNED) + large * 50, 0)):
        made.clear()
        block, found = png_reader.exif_and_xmp(png(deep(3), extra=extra))
        assert (block == TURNED, found) == ((False, XMP) if extra == packet * 50 else (True, b""))
        assert len([kind for kind in made if kind]) == texts


@pytest.mark.parametrize("digits", [b"no digits", b"4", "é".encode(), b""])
def test_a_damaged_text_turns_nothing(digits: bytes) -> None:
    image = deep(3).astype(np.uint8)
    data = png(image, extra=chunk(b"tEXt", KEY + b"\nexif\n  4\n" + digits))

    np.testing.assert_array_equal(ops.decode_png(data, exif_orientation=True), image)


@pytest.mark.parametrize("form", ["WEBP", "TIFF"])
def test_an_orientation_in_xmp_turns_other_formats_when_it_is_asked_for(form: str) -> None:
    image, out, packet = deep(3).astype(np.uint8), io.BytesIO(), XMP.replace(b'"3"', b'"6"')
    xmp: dict[str, Any] = {"tiffinfo": {700: packet}} if form == "TIFF" else {"xmp": packet, "lossless": True}
    Image.fromarray(image).save(out, form, **xmp)
    data = out.getvalue()

    np.testing.assert_array_equal(ops.decode_image(data, exif_orientation=True), np.rot90(image, -1))
    np.testing.assert_array_equal(ops.decode_image(data), image)


INDICES = indexed(classes(8))


def palette_as(channels: int, dtype: str) -> Any:
    return ops.decode_image(INDICES, channels, dtype, palette="indices")


def in_dtype(dtype: Any, function: Any = ops.decode_image) -> Any:
    return function(DEEP["8 bits"], dtype=dtype)


test_what_an_image_cannot_be_decoded_to_is_refused = refused(
    (SpecError, "needs channels from 0, 1, 3, 4, got 2", lambda: ops.decode_png(PNGS["rgb"], channels=2)),
    (SpecError, "needs channels from 0, 1, 3, 4, got 2", lambda: ops.decode_image(PNGS["rgb"], channels=2)),
    (SpecError, "expand_animations=False", lambda: ops.decode_image(PNGS["rgb"], expand_animations=True)),
    (SpecError, "palette='indices', got 3 and uint8", lambda: palette_as(3, "uint8")),
    (SpecError, "palette='indices', got 4 and uint8", lambda: palette_as(4, "uint8")),
    (SpecError, "palette='indices', got 1 and float32", lambda: palette_as(1, "float32")),
    (SpecError, "palette from colors, indices, got 'index'", lambda: ops.decode_png(INDICES, palette="index")),  # type: ignore[arg-type]
    (SpecError, "needs dtype from uint8, uint16.*, got 'int16'", lambda: in_dtype("int16")),
    (SpecError, "needs dtype from uint8, uint16.*, got 'float64'", lambda: in_dtype("float64", ops.decode_png)),
    (SpecError, "needs dtype from uint8, uint16.*, got None", lambda: in_dtype(None)),
    (SpecError, "needs dtype from uint8, uint16.*, got 'rabbit'", lambda: in_dtype("rabbit")),
    (SpecError, "needs dtype from uint8, uint16.*, got 'float16'", lambda: in_dtype("float16")),
    (SpecError, "needs dtype from uint8, uint16, got 'float32'", lambda: in_dtype("float32", ops.decode_png)),
)
