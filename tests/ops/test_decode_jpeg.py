"""decode_jpeg: as Pillow and TensorFlow decode, damaged files, a fraction of the size or a window before the rest."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from numpy.random import default_rng
from PIL import Image, ImageOps

from gpupipe import ops
from gpupipe.comparison.steps.tolerance import GPU_DECODING
from gpupipe.errors import DecodeError, PlanTypeError, ShapeError, SpecError
from gpupipe.extract.images import decode as decoding
from gpupipe.extract.images.headers import check_complete, read_header
from gpupipe.graph.op import Array
from gpupipe.graph.values import Apply, Input, Item, Value
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.decode_crop import DecodeCrop
from gpupipe.ops._shared.decode_smaller import DecodeSmaller, ResizeWindow, ratio_of
from gpupipe.ops._shared.reverse import Reverse
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.ops.crop_to_bounding_box import CropToBoundingBox
from gpupipe.ops.decode_image import DecodeImage
from gpupipe.ops.decode_jpeg import DecodeJpeg
from gpupipe.ops.resize import Resize
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec
from gpupipe.transform.program import Feed, Program
from tests.conformance.harness import EXECUTORS, host, make_executor

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


WINDOW = TensorSpec((2,), "int32")


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


@pytest.mark.parametrize(
    ("window", "size", "ratio"),
    [
        ((224, 224), (224, 224), 1),
        ((559, 2000), (224, 224), 1),
        ((560, 560), (224, 224), 2),  # 280 are 1.25 times 224
        ((1119, 1200), (224, 224), 2),
        ((1120, 1120), (224, 224), 4),
        ((9000, 9000), (224, 224), 8),
        ((100, 100), (224, 224), 1),
        ((400, 100), (10, 20), 4),  # the side with less room decides
        ((1, 1), (1, 1), 1),
    ],
)
def test_the_ratio_leaves_a_quarter_more_pixels_than_the_result_has(window: Any, size: Any, ratio: int) -> None:
    assert ratio_of(window, size) == ratio


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


@pytest.mark.parametrize("channels", [0, 1, 3])
@pytest.mark.parametrize("kind", ["gray", "cmyk", "progressive", "4:2:0"])
def test_every_kind_of_jpeg_has_its_channels(kind: str, channels: int) -> None:
    how: dict[str, Any] = {"cmyk": {"mode": "CMYK"}, "progressive": {"progressive": True}, "4:2:0": {"subsampling": 2}}
    data = encoded(picture(80, 96, 1 if kind == "gray" else 3), quality=90, **how.get(kind, {}))
    decode = DecodeJpeg(channels)

    image, box = DecodeSmaller(decode, False).reference(data, ints(16, 16))

    exact = decode.reference(data)
    assert image.shape == (20, 24, exact.shape[2])
    assert box.tolist() == [0, 0, 20, 24]
    means = exact.reshape(20, 4, 24, 4, -1).mean(axis=(1, 3))
    assert np.abs(image - means).mean() < 6  # a pixel is about the mean of its block; the waves have sharp edges


def test_the_same_damaged_images_are_bad() -> None:
    rng, op = default_rng(4), DecodeSmaller(DecodeJpeg(3), False)
    kinds: list[dict[str, Any]] = [{"subsampling": 0}, {"subsampling": 2}, {"progressive": True}, {"mode": "CMYK"}]
    files = [encoded(picture(67, 90), quality=90, **kind) for kind in kinds]
    bad = 0
    for number in range(160):
        data = bytearray(files[number % len(files)])
        at = int(rng.integers(250, len(data) - 2))
        if number % 3:
            data[at : at + 2] = 0xFF, int(rng.integers(0xC0, 0x100))
        else:
            data = data[:at] + b"\xff\xd9"
        try:
            check_complete(bytes(data), read_header(bytes(data)))
        except DecodeError:
            continue  # both see it in the header
        refused = [_refuses(DecodeJpeg(3), data), _refuses(op, data, ints(12, 9))]

        assert refused[0] == refused[1], f"image {number}"
        bad += refused[0]
    assert bad > 10


def _refuses(op: Any, data: bytearray, *params: Array) -> bool:
    try:
        op.reference(bytes(data), *params)
    except DecodeError:
        return True
    return False


@pytest.mark.conformance
@pytest.mark.parametrize("kind", EXECUTORS)
def test_executors_agree_whatever_the_ratio(kind: str) -> None:
    files = [encoded(picture(90 + n, 120 - n), quality=90, subsampling=n % 3, orientation=n) for n in range(1, 9)]
    files[4] = encoded(picture(95, 115), "PNG")
    starts, shapes = np.array([[n, 2 * n] for n in range(8)]), np.array([[60 + n, 75 - n] for n in range(8)])
    sizes = np.array([[60, 60], [24, 24], [12, 12], [5, 5]] * 2)
    inputs: list[Value] = [Input(0, TensorSpec((), bytes)), *(Input(n, WINDOW) for n in (1, 2, 3))]
    columns: list[Any] = [files, *(one.astype(np.int32) for one in (starts, shapes, sizes))]
    decode, resize = DecodeJpeg(3, True), Resize(antialias=True, keep_dtype=True)
    smaller = Apply(DecodeSmaller(decode, True), (inputs[0],), tuple(inputs[1:]))
    made = Apply(ResizeWindow(resize), (Item(smaller, 0), Item(smaller, 1)), (inputs[3],))
    program = Program((Item(smaller, 0), made))
    executor = make_executor(kind, program, 8)
    try:
        executor.submit(Feed(8, tuple(columns[inputs.index(value)] for value in program.inputs)))
        decoded, results = executor.collect()
    finally:
        executor.close()

    for row, (image, result) in enumerate(zip(map(host, decoded), map(host, results), strict=True)):
        params = [column[row] for column in columns[1:]]
        whole, box = DecodeSmaller(decode, True).reference(files[row], *params)
        np.testing.assert_array_equal(image, whole)  # the host decodes, for every executor
        off = np.abs(result.astype(int) - ResizeWindow(resize).reference(whole, box, params[2]))
        # DALI's weights are float32 and it repeats edge pixels, which Pillow ignores
        assert off.max() <= 18 + GPU_DECODING
        assert off[1:-1, 1:-1].max() <= 1


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


def test_windows_that_leave_the_image_name_their_rows() -> None:
    op = CropToBoundingBox(np.array([6, 5]), 0, 40, 10)

    with pytest.raises(ShapeError, match=r"got 40x10 at \(6, 0\) of an image of 45x60") as caught:
        op.draw(BatchRng(0, 0, np.zeros(2, np.uint64)), np.array([[45, 60]] * 2))

    assert getattr(caught.value, "rows", None) == (0,)


def test_windows_that_cannot_exist_are_refused() -> None:
    with pytest.raises(SpecError, match="target_height"):
        ops.decode_and_crop_jpeg(DATA, (0, 0, 0, 10))
    with pytest.raises(PlanTypeError, match="crop_window as"):
        ops.decode_and_crop_jpeg(DATA, (0, 0, 5))
