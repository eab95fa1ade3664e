"""decode_jpeg: as Pillow and TensorFlow decode, damaged files, a fraction of the size or a window before the rest."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from gpupipe import Dataset, ops
from gpupipe.errors import DecodeError, PlanTypeError, SpecError
from gpupipe.extract.images import decode as decoding
from gpupipe.graph.op import Array
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.decode_crop import DecodeCrop
from gpupipe.ops._shared.decode_smaller import DecodeSmaller, ResizeWindow, ratio_of
from gpupipe.ops._shared.reverse import Reverse
from gpupipe.ops._shared.samples import encoded, noise, picture
from gpupipe.ops.decode_image import DecodeImage
from gpupipe.ops.decode_jpeg import DecodeJpeg
from gpupipe.ops.resize import Resize
from gpupipe.spec import TensorSpec
from tests.ops.refusals import refused
from tests.ops.value_chains import BACKENDS, on

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


CMYK = {"CMYK": encoded(picture(29, 37), mode="CMYK", quality=90)}


@pytest.mark.parametrize("data", (FILES | CMYK).values(), ids=FILES | CMYK)
def test_colours_are_pillows(data: bytes, library: str) -> None:
    image = ops.decode_jpeg(data, channels=3)

    assert image.dtype == np.uint8
    np.testing.assert_array_equal(image, np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))


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


def test_native_channels_are_one_for_gray_and_three_for_anything_else() -> None:
    assert ops.decode_jpeg(FILES["gray"]).shape == (21, 13, 1)
    assert ops.decode_jpeg(FILES["4:4:4"]).shape == (29, 37, 3)
    assert ops.decode_jpeg(encoded(picture(9, 8), mode="CMYK")).shape == (9, 8, 3)
    assert ops.decode_jpeg(encoded(picture(9, 8, 4), "PNG")).shape == (9, 8, 3)


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


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int32)


def resized(
    data: bytes, start: Array, shape: Array, size: Array, *, upright: bool = False, exact: bool = False
) -> Array:
    """A window of an image, resized as `random_resized_crop` does: decoded at a fraction of its size, or exactly."""
    decode, resize = DecodeJpeg(3, upright), Resize(antialias=True, keep_dtype=True)
    if exact:
        (y, x), (h, w) = start.tolist(), shape.tolist()
        return resize.reference(decode.reference(data)[y : y + h, x : x + w], size)
    image, box = DecodeSmaller(decode, True).reference(data, start, shape, size)
    return ResizeWindow(resize).reference(image, box, size)


def ramp(height: int, width: int) -> Array:
    """An image whose red is 2 for each row, and whose green is 2 for each column."""
    y, x = np.mgrid[:height, :width]
    return np.stack([2 * y, 2 * x, np.full_like(x, 99)], axis=2).astype(np.uint8)


def test_the_ratio_leaves_a_quarter_more_pixels_than_the_result_has() -> None:
    for side, ratio in ((224, 1), (559, 1), (560, 2), (1119, 2), (1120, 4), (9000, 8), (100, 1)):
        assert ratio_of((side, side), (224, 224)) == ratio  # 280 are 1.25 times 224
        assert ratio_of((side, 2000), (224, 224)) == min(ratio, 4)
    assert ratio_of((400, 100), (10, 20)) == 4  # the side with less room decides
    assert ratio_of((1, 1), (1, 1)) == 1


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("upright", [False, True])
def test_a_window_lies_where_it_lies_in_the_whole_image(upright: bool, orientation: int) -> None:
    data = encoded(ramp(93, 117), quality=98, subsampling=0, orientation=orientation)  # no multiples of 8
    shape = ints(71, 65)

    for start in (ints(0, 0), ints(5, 11), ints(22, 28)):
        for side, ratio in ((25, 2), (13, 4)):
            size = ints(side, side)
            assert ratio_of(shape.tolist(), size.tolist()) == ratio
            got = resized(data, start, shape, size, upright=upright)
            expected = resized(data, start, shape, size, upright=upright, exact=True)

            # A shift by half a pixel of the whole image would be 1; in the outer ring the mean of a block is flatter
            off = (got.astype(float) - expected)[2:-2, 2:-2, :2]
            assert np.abs(off.mean(axis=(0, 1))).max() < 0.4
            assert np.abs(off).max() <= 3


def test_the_whole_image_is_resized_where_there_is_no_window() -> None:
    data = encoded(ramp(93, 117), quality=98, subsampling=0, orientation=6)

    for upright in (False, True):
        decode = DecodeJpeg(3, upright)
        image, box = DecodeSmaller(decode, False).reference(data, ints(9, 9))
        height, width = decode.reference(data).shape[:2]

        np.testing.assert_array_equal(box[2:] - box[:2], np.array([height, width]) / 8)
        assert image.shape[:2] == tuple(-(-side // 8) for side in (height, width))


def test_a_small_window_and_other_formats_are_decoded_exactly() -> None:
    decode, pixels = DecodeImage(3), picture(90, 120)
    files = {"jpeg": encoded(pixels, quality=90), "png": encoded(pixels, "PNG"), "bmp": encoded(pixels, "BMP")}

    for name, data in files.items():
        for shape, size in ((ints(30, 40), ints(20, 20)), *([(ints(80, 80), ints(9, 9))] * (name != "jpeg"))):
            image, box = DecodeSmaller(decode, True).reference(data, ints(3, 5), shape, size)

            np.testing.assert_array_equal(image, decode.reference(data)[3 : 3 + shape[0], 5 : 5 + shape[1]])
            assert box.tolist() == [0, 0, *shape.tolist()]


DATA = encoded(picture(45, 60), quality=85, subsampling=2, orientation=6)
STARTS = np.array([[0, 0], [21, 24], [7, 3], [20, 1]], np.int32)  # the first and the last place, and odd ones
SHAPES = np.array([[24, 21], [24, 21], [1, 1], [13, 20]], np.int32)


def test_only_decoders_and_crops_inside_the_image_fuse() -> None:
    assert DecodeCrop.of(DecodeJpeg(3), Crop(pad=True)) is None
    assert DecodeCrop.of(Reverse(), Crop()) is None


def test_sizes_and_spec_are_those_of_the_crop() -> None:
    op = DecodeCrop(DecodeJpeg(3, True), Crop(24, 21))

    assert op.exif_orientation
    assert op.infer(TensorSpec((), bytes)) == TensorSpec((24, 21, 3), "uint8", "HWC")
    np.testing.assert_array_equal(op.size(np.full((4, 2), 99), STARTS, SHAPES), SHAPES)


def test_decode_and_crop_is_a_slice_of_the_image() -> None:
    whole = ops.decode_jpeg(DATA)

    for window in ((3, 4, 20, 30), [0, 0, 45, 60], np.array([44, 59, 1, 1])):
        y, x, h, w = window
        np.testing.assert_array_equal(ops.decode_and_crop_jpeg(DATA, window), whole[y : y + h, x : x + w])


@pytest.mark.tf
def test_tensorflow_agrees_inside_the_window(tf: Any) -> None:
    expected = tf.io.decode_and_crop_jpeg(DATA, [3, 4, 30, 40], dct_method="INTEGER_ACCURATE").numpy()

    got = ops.decode_and_crop_jpeg(DATA, (3, 4, 30, 40))

    # At the border TensorFlow upsamples the colours without what lies outside.
    np.testing.assert_array_equal(got[2:-2, 2:-2], expected[2:-2, 2:-2])


def gray(**arguments: Any) -> Any:
    return ops.decode_jpeg(FILES["gray"], **arguments)


CHANNELS = "decode_jpeg needs channels from 0, 1, 3"

test_what_libjpeg_has_not_is_refused = refused(
    (SpecError, "ratio from 1, 2, 4, 8, got 3", lambda: gray(ratio=3)),
    (SpecError, "ratio from 1, 2, 4, 8, got True", lambda: gray(ratio=True)),
    (SpecError, "dct_method INTEGER_ACCURATE or INTEGER_FAST, got 'FLOAT'", lambda: gray(dct_method="FLOAT")),
    (SpecError, CHANNELS, lambda: gray(channels=2)),
    (SpecError, CHANNELS, lambda: gray(channels=-1)),
    (SpecError, CHANNELS, lambda: gray(channels=True)),
    (SpecError, CHANNELS, lambda: gray(channels="3")),
    (SpecError, "needs the bytes of an encoded image, got uint8", lambda: ops.decode_jpeg(ramp(4, 4))),
    (SpecError, "target_height", lambda: ops.decode_and_crop_jpeg(DATA, (0, 0, 0, 10))),
    (PlanTypeError, "crop_window as", lambda: ops.decode_and_crop_jpeg(DATA, (0, 0, 5))),
)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", [None, (40, 1)], ids=["of several sizes", "of one column each"])
def test_a_window_of_one_column_has_the_colours_of_the_whole_image(backend: Any, size: tuple[int, int] | None) -> None:
    """libjpeg interpolates the colours of a window of one column from that column alone."""
    data = [encoded(noise(40, 64), quality=90, subsampling=2)] * 6
    left, width = np.array([0, 5, 6, 63, 30, 31]), np.array([1, 1, 2, 1, 3, 1])
    chosen = width > 0 if size is None else width == 1
    ds = Dataset.from_tensor_slices((data[: chosen.sum()], left[chosen], width[chosen]))

    def cut(x: Any, left: Any, width: Any) -> Any:
        image = ops.decode_jpeg(x, channels=3)
        return ops.crop_to_bounding_box(image, 0, left, 40, width if size is None else 1), left

    whole = ops.decode_jpeg(data[0], channels=3)
    for image, start in ds.map(cut).with_options(on(backend)):
        np.testing.assert_array_equal(image, whole[:, start : start + image.shape[1]])
    if size is not None:
        for image, start in ds.map(cut).batch(2).with_options(on(backend)).unbatch():
            np.testing.assert_array_equal(image, whole[:, start : start + 1])
