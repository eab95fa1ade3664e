"""decode_jpeg against Pillow and TensorFlow, EXIF orientation, damaged files."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from gpupipe import ops
from gpupipe.errors import DecodeError, SpecError
from gpupipe.extract.images import decode as decoding
from gpupipe.ops._shared.samples import encoded, picture

FILES = {
    "4:4:4": encoded(picture(29, 37), quality=90, subsampling=0),
    "4:2:0": encoded(picture(31, 18), quality=85, subsampling=2),
    "4:2:2": encoded(picture(16, 33), quality=70, subsampling=1),
    "progressive": encoded(picture(40, 25), quality=80, progressive=True),
    "gray": encoded(picture(21, 13, 1), quality=90),
    "1x1": encoded(picture(1, 1)),
}


@pytest.fixture(params=["simplejpeg", "pillow"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the two libraries that decode on the host."""
    if request.param == "pillow":
        monkeypatch.setattr(decoding, "_turbo", lambda: None)
    else:
        pytest.importorskip("simplejpeg")
    return str(request.param)


@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_colours_are_pillows(data: bytes, library: str) -> None:
    image = ops.decode_jpeg(data, channels=3)

    assert image.dtype == np.uint8
    np.testing.assert_array_equal(image, np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))


@pytest.mark.tf
@pytest.mark.parametrize("channels", [0, 1, 3])
@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_tensorflow_gives_the_same(data: bytes, channels: int, library: str, tf: Any) -> None:
    expected = tf.io.decode_jpeg(data, channels=channels, dct_method="INTEGER_ACCURATE").numpy()

    np.testing.assert_array_equal(ops.decode_jpeg(data, channels=channels), expected)


@pytest.mark.tf
@pytest.mark.parametrize("method", ["INTEGER_ACCURATE", "INTEGER_FAST"])
@pytest.mark.parametrize("ratio", [1, 2, 4, 8])
@pytest.mark.parametrize("data", list(FILES.values())[:5], ids=list(FILES)[:5])
def test_tensorflow_decodes_the_same_at_a_fraction_of_the_size(
    data: bytes, ratio: int, method: Any, library: str, tf: Any
) -> None:
    if library == "pillow" and method == "INTEGER_FAST":
        pytest.skip("Pillow has no fast DCT")
    for channels in (0, 1, 3):
        expected = tf.io.decode_jpeg(data, channels=channels, ratio=ratio, dct_method=method).numpy()

        image = ops.decode_jpeg(data, channels, ratio, dct_method=method)

        np.testing.assert_array_equal(image, expected)


@pytest.mark.parametrize("ratio", [2, 4, 8])
def test_blocks_of_one_level_keep_it_at_a_fraction_of_the_size(ratio: int) -> None:
    levels = np.array([[16, 240, 100], [64, 128, 200]], np.uint8)
    data = encoded(np.kron(levels, np.ones((8, 8), np.uint8))[:, :, None], quality=100)

    image = ops.decode_jpeg(data, 1, ratio)

    np.testing.assert_array_equal(image[:, :, 0], np.kron(levels, np.ones((8 // ratio, 8 // ratio), np.uint8)))


def test_an_image_at_a_fraction_of_its_size_is_upright_where_it_is_asked_for() -> None:
    data = encoded(picture(31, 18), quality=90, orientation=6)

    np.testing.assert_array_equal(
        ops.decode_jpeg(data, 3, 2, exif_orientation=True), np.rot90(ops.decode_jpeg(data, 3, 2), -1)
    )


def test_an_image_is_bad_at_every_ratio_or_at_none(library: str) -> None:
    whole, rng = encoded(picture(64, 48), quality=90), np.random.default_rng(3)
    scan = whole.index(b"\xff\xda")
    files = [whole[: int(len(whole) * part)] + b"\xff\xd9" for part in (0.1, 0.3, 0.6, 0.95)]
    for at in rng.integers(scan, len(whole), 60):
        files.append(whole[:at] + bytes([whole[at] ^ int(rng.integers(1, 256))]) + whole[at + 1 :])

    verdicts = [[_is_bad(data, ratio) for ratio in (1, 2, 4, 8)] for data in files]

    assert all(len(set(verdict)) == 1 for verdict in verdicts)
    assert 0 < sum(verdict[0] for verdict in verdicts) < len(files)


def _is_bad(data: bytes, ratio: int) -> bool:
    try:
        ops.decode_jpeg(data, 3, ratio)
    except DecodeError:
        return True
    return False


def test_another_format_is_not_made_smaller() -> None:
    data = encoded(picture(9, 8), "PNG")

    assert ops.decode_jpeg(data, dct_method="INTEGER_FAST").shape == (9, 8, 3)
    with pytest.raises(DecodeError, match="ratio=2 needs a JPEG, got the format png"):
        ops.decode_jpeg(data, 0, 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"ratio": 3}, "ratio from 1, 2, 4, 8, got 3"),
        ({"ratio": True}, "ratio from 1, 2, 4, 8, got True"),
        ({"dct_method": "FLOAT"}, "dct_method INTEGER_ACCURATE or INTEGER_FAST, got 'FLOAT'"),
    ],
)
def test_a_ratio_or_a_method_that_libjpeg_has_not_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        ops.decode_jpeg(FILES["gray"], **arguments)


def test_native_channels_are_one_for_gray_and_three_for_anything_else() -> None:
    assert ops.decode_jpeg(FILES["gray"]).shape == (21, 13, 1)
    assert ops.decode_jpeg(FILES["4:4:4"]).shape == (29, 37, 3)
    assert ops.decode_jpeg(encoded(picture(9, 8), mode="CMYK")).shape == (9, 8, 3)
    assert ops.decode_jpeg(encoded(picture(9, 8, 4), "PNG")).shape == (9, 8, 3)


def test_cmyk_is_pillows() -> None:
    data = encoded(picture(29, 37), mode="CMYK", quality=90)

    image = ops.decode_jpeg(data, channels=3)

    np.testing.assert_array_equal(image, np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_followed_on_request_only(orientation: int, library: str) -> None:
    data = encoded(picture(17, 29), quality=90, orientation=orientation)
    pillow = Image.open(io.BytesIO(data))

    np.testing.assert_array_equal(ops.decode_jpeg(data, 3), np.asarray(pillow))
    np.testing.assert_array_equal(
        ops.decode_jpeg(data, 3, exif_orientation=True), np.asarray(ImageOps.exif_transpose(pillow))
    )


def test_the_result_is_contiguous_and_owned(library: str) -> None:
    image = ops.decode_jpeg(encoded(picture(17, 29), orientation=6), 3, exif_orientation=True)

    assert image.flags.c_contiguous
    assert image.flags.writeable


def test_bytes_behind_the_end_are_fine() -> None:
    data = FILES["4:4:4"]

    np.testing.assert_array_equal(ops.decode_jpeg(data + b"more" * 99), ops.decode_jpeg(data))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no bytes"),
        (b"this is no image", "not an image"),
        (FILES["4:4:4"][:300], "."),
        (FILES["4:4:4"][:-2], "truncated JPEG"),
        (FILES["4:4:4"][: len(FILES["4:4:4"]) // 2], "truncated JPEG"),
        (encoded(picture(9, 9), "GIF"), "a GIF"),
    ],
    ids=["empty", "text", "header", "no end", "half", "gif"],
)
def test_what_is_no_whole_image_is_a_data_error(data: bytes, reason: str, library: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        ops.decode_jpeg(data, channels=3)


def test_damage_inside_a_header_is_a_data_error(library: str) -> None:
    data = FILES["4:4:4"]
    huffman = data.index(b"\xff\xc4")
    damaged = data[: huffman + 5] + b"\xff" * 16 + data[huffman + 21 :]  # impossible code lengths

    with pytest.raises(DecodeError, match="damaged"):
        ops.decode_jpeg(damaged, channels=3)


@pytest.mark.parametrize("channels", [2, 4, -1, True, "3"])
def test_other_channels_are_refused(channels: Any) -> None:
    with pytest.raises(SpecError, match="decode_jpeg needs channels from 0, 1, 3"):
        ops.decode_jpeg(FILES["gray"], channels=channels)


def test_an_array_is_refused() -> None:
    with pytest.raises(SpecError, match="decode_jpeg needs the bytes of an encoded image, got uint8"):
        ops.decode_jpeg(np.zeros((4, 4, 3), np.uint8))
