"""Every kind of image file, through every decoder: the executors give one image, and it has TensorFlow's shape."""

from __future__ import annotations

import io
import os
import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import DataError, DecodeError
from gpupipe.extract.images.exif import segment_of
from gpupipe.extract.images.headers import read_header
from gpupipe.ops._shared.samples import picture
from gpupipe.transform.machine import has_dali
from tests.chains.data import on
from tests.reliability.image_files import HEIGHT, WIDTH, bmp, files, png, scans, unfinished


@pytest.fixture(scope="module")
def tf() -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return pytest.importorskip("tensorflow")


FILES = dict(files())
DECODERS = {"decode_jpeg": (0, 1, 3), "decode_png": (0, 1, 3, 4), "decode_image": (0, 1, 3, 4)}
WINDOW = (3, 5, 11, 13)

needs_dali = pytest.mark.skipif(not has_dali(), reason="DALI is not installed")


def decoded(data: bytes, function: Any, executor: str) -> npt.NDArray[Any] | str:
    """What a chain of one image gives on an executor, or why it gives none."""
    ds = gp.Dataset.from_tensors(data).map(function).batch(1)
    with ds.with_options(on(executor, on_error="skip")).iterator(0) as items:
        images = [np.asarray(batch)[0] for batch in items]
        return images[0] if images else f"{items.errors[0].stage}: {items.errors[0].reason}"


def assert_equal_on_executors(data: bytes, function: Any, most: int) -> None:
    numpy, dali = (decoded(data, function, executor) for executor in ("numpy", "dali"))
    if isinstance(numpy, str) or isinstance(dali, str):
        assert numpy == dali
    else:
        assert numpy.shape == dali.shape
        assert np.abs(numpy.astype(int) - dali).max() <= most


@needs_dali
@pytest.mark.parametrize("name", FILES)
def test_the_executors_give_one_image(name: str) -> None:
    """Of the two other decoders another one for each file: how many channels each gives is tested below."""
    other = ("decode_jpeg", "decode_png")[list(FILES).index(name) % 2]
    for decoder in DECODERS if os.environ.get("GPUPIPE_FULL") else ("decode_image", other):
        for channels in DECODERS[decoder]:

            def whole(x: Any, decoder: str = decoder, channels: int = channels) -> Any:
                return getattr(ops, decoder)(x, channels=channels)

            def window(x: Any, whole: Any = whole) -> Any:
                return ops.crop_to_bounding_box(whole(x), *WINDOW)

            for function in (whole, window) if decoder == "decode_image" else (whole,):
                assert_equal_on_executors(FILES[name], function, int(channels == 1))  # gray is rounded in two ways


@pytest.mark.tf
@pytest.mark.parametrize("name", [name for name in FILES if name.startswith(("png", "jpeg"))])
def test_the_number_of_channels_is_tensorflows(name: str, tf: Any) -> None:
    data = FILES[name]
    theirs = tf.io.decode_image(data, expand_animations=False)

    ours = ops.decode_image(data)

    assert ours.shape[2] == theirs.shape[2]
    assert ops.decode_png(data).shape == ours.shape
    assert ops.decode_jpeg(data).shape == (*ours.shape[:2], 1 if ours.shape[2] == 1 else 3)


@pytest.mark.parametrize("header", [12, 40, 108, 124])
@pytest.mark.parametrize("bits", [1, 4, 8])
def test_a_bmp_with_a_gray_palette_is_gray(bits: int, header: int) -> None:
    gray, coloured = bmp(bits, header=header), bmp(bits, gray=False, header=header)

    for decode in (ops.decode_jpeg, ops.decode_png, ops.decode_image):
        assert decode(gray).shape == (HEIGHT, WIDTH, 1)
        assert decode(coloured).shape == (HEIGHT, WIDTH, 3)
    np.testing.assert_array_equal(ops.decode_image(gray), ops.decode_image(gray, channels=3)[:, :, :1])
    assert read_header(gray).channels == ops.extract_jpeg_shape(gray)[2] == 1
    assert read_header(coloured).channels == 3


@pytest.mark.parametrize("kind", ["BMP", "TIFF", "PNG"])
def test_an_image_above_pillows_limit_is_not_called_damaged(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    file = io.BytesIO()
    Image.new("1", (40, 30)).save(file, kind)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)

    with pytest.raises(DecodeError, match=f"a {kind} may have 1000 pixels, the limit of Pillow"):
        ops.decode_image(file.getvalue())


@pytest.mark.tf
@pytest.mark.parametrize(
    ("colour", "bits", "clear"), [(0, 2, (1,)), (0, 4, (9,)), (0, 8, (77,)), (0, 16, (513,)), (2, 8, (7, 8, 9))]
)
def test_a_transparent_colour_is_tensorflows(colour: int, bits: int, clear: tuple[int, ...], tf: Any) -> None:
    samples = np.random.default_rng(4).integers(0, 1 << bits, (HEIGHT, WIDTH, len(clear)))
    samples[::3, ::2] = clear
    data = png(colour, bits, transparent=clear, samples=samples)

    image = ops.decode_png(data, channels=4)

    np.testing.assert_array_equal(image, tf.io.decode_png(data, channels=4).numpy())
    assert {0, 255} == set(image[:, :, 3].flat)


def progressive(mode: str = "RGB", **how: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(picture(120, 160)).convert(mode).save(stream, "JPEG", quality=60, progressive=True, **how)
    return stream.getvalue()


@needs_dali
@pytest.mark.parametrize("upright", [False, True])
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_a_window_of_a_progressive_jpeg_that_lacks_scans_is_one_of_the_whole_image(mode: str, upright: bool) -> None:
    exif = Image.Exif()
    exif[274] = 6
    data = progressive(mode, exif=exif, subsampling=2 if mode == "RGB" else 0)

    def window(x: Any) -> Any:
        return ops.crop_to_bounding_box(ops.decode_jpeg(x, channels=3, exif_orientation=upright), 37, 45, 51, 63)

    for kept in (1, 2, len(scans(data)) // 2, len(scans(data))):
        assert_equal_on_executors(unfinished(data, kept), window, 0)


@needs_dali
@pytest.mark.parametrize("orientation", [1, 2, 6])
@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("jpeg")])
def test_a_jpeg_is_turned_alike_on_the_executors(name: str, orientation: int) -> None:
    data = FILES[name][:2] + segment_of(orientation) + FILES[name][2:]

    def whole(x: Any) -> Any:
        return ops.decode_jpeg(x, channels=3, exif_orientation=True)

    def window(x: Any) -> Any:
        return ops.crop_to_bounding_box(whole(x), *WINDOW)

    assert_equal_on_executors(data, whole, 0)
    assert_equal_on_executors(data, window, 0)


def tiff(channels: int, kind: int) -> bytes:
    """A TIFF of 4x2 pixels without compression."""
    pixels = bytes(range(8 * channels))
    tags = [
        (256, 3, 1, 4), (257, 3, 1, 2), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, kind), (273, 4, 1, 8),
        (277, 3, 1, channels), (278, 3, 1, 2), (279, 4, 1, len(pixels)), *[(338, 3, 1, 0)] * (channels in (2, 4)),
    ]  # fmt: skip
    entries = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    return b"II*\0" + struct.pack("<I", 8 + len(pixels)) + pixels + struct.pack("<H", len(tags)) + entries + bytes(4)


def test_a_tiff_of_another_kind_is_not_called_damaged() -> None:
    needed = (
        "decode_image: a TIFF that Pillow reads is needed, this one is truncated, damaged or of another kind; read one "
        "of another kind in an ops.py_function, with tifffile"
    )

    with pytest.raises(DecodeError, match=f"^{needed}"):
        ops.decode_image(tiff(3, 32845))
    assert ops.decode_image(tiff(3, 2)).shape == (2, 4, 3)


@pytest.mark.parametrize(
    ("decode", "stage"),
    [
        (ops.decode_jpeg, "decode_jpeg"),
        (ops.decode_png, "decode_png"),
        (lambda data: ops.decode_png(data, channels=3), "decode_png"),
        (ops.decode_image, "decode_image"),
        (ops.extract_jpeg_shape, "extract_jpeg_shape"),
        (lambda data: ops.decode_and_crop_jpeg(data, (0, 0, 1, 1)), "decode_jpeg"),
    ],
)
def test_an_error_names_the_decoder_that_was_called(decode: Any, stage: str) -> None:
    with pytest.raises(DecodeError, match=f"^{stage}: not an image"):
        decode(b"this is text")

    for executor in ("numpy", "dali") if has_dali() else ("numpy",):
        assert str(decoded(b"this is text", decode, executor)).startswith(f"{stage}: not an image")


def test_an_error_of_a_decoder_inside_a_python_map_names_it_too() -> None:
    ds = gp.Dataset.from_tensors(b"this is text").map(lambda x: ops.decode_jpeg(bytes(x)), traced=False)

    with pytest.raises(DataError, match="decode_jpeg: not an image"):
        list(ds)
