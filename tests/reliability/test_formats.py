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
from gpupipe.extract.images.jpeg import check_scans, with_plain_orientation
from gpupipe.ops._shared.samples import picture
from gpupipe.transform.machine import has_dali
from tests.chains.data import on
from tests.reliability.bad_records import without
from tests.reliability.image_files import HEIGHT, WIDTH, bmp, chunk, files, png, scans, tag, unfinished, written


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
    for decoder in ("decode_image", other):
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
    data = written(Image.new("1", (40, 30)), kind)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)

    with pytest.raises(DecodeError, match=f"a {kind} may have 1000 pixels, the limit of Pillow"):
        ops.decode_image(data)


@pytest.mark.parametrize("kind", ["BMP", "PNG", "WEBP", "JPEG"])
def test_a_large_image_that_may_be_decoded_is_decoded_without_a_warning(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Pillow would print one; warnings are errors here."""
    data = written(Image.new("CMYK" if kind == "JPEG" else "RGB", (40, 30)), kind)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 700)

    assert ops.decode_image(data, channels=3).shape == (30, 40, 3)
    assert read_header(data).width == 40


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
    return written(Image.fromarray(picture(120, 160)).convert(mode), "JPEG", quality=60, progressive=True, **how)


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

    for function in (whole, lambda x: ops.crop_to_bounding_box(whole(x), *WINDOW)):
        assert_equal_on_executors(data, function, 0)


def test_a_tiff_of_another_kind_is_not_called_damaged() -> None:
    data = written(Image.fromarray(picture(2, 4)), "TIFF")
    needed = "a TIFF that Pillow reads is needed, this one is truncated, damaged or of another kind"

    with pytest.raises(DecodeError, match=f"^decode_image: {needed}; .*in an ops.py_function, with tifffile"):
        ops.decode_image(tag(data, 262, 8, 32845))
    assert ops.decode_image(tag(data, 262, 8, 2)).shape == (2, 4, 3)


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


PIXELS = np.random.default_rng(1).integers(0, 256, (16, 12, 3), dtype=np.uint8)


def encoded(kind: str, image: Any = None, **how: Any) -> bytes:
    return written(Image.fromarray(PIXELS) if image is None else image, kind, **how)


def with_chunks(*chunks: bytes) -> bytes:
    plain = encoded("PNG")
    return plain[:33] + b"".join(chunks) + plain[33:]


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    body = b"".join(kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) & 1) for kind, data in chunks)
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def extended(flags: int) -> tuple[bytes, bytes]:
    return b"VP8X", bytes([flags, 0, 0, 0, 11, 0, 0, 15, 0, 0])


def in_runs(body: bytes) -> bytes:
    """A BMP of 8x8 pixels, run-length encoded."""
    begin = 14 + 40 + 1024
    palette = b"".join(bytes([i, 255 - i, i // 2, 0]) for i in range(256))
    info = struct.pack("<IiiHHIIiiII", 40, 8, 8, 1, 8, 1, len(body), 0, 0, 256, 0)
    return b"BM" + struct.pack("<IHHI", begin + len(body), 0, 0, begin) + info + palette + body


def changed_bmp(colours: int) -> bytes:
    """A gray BMP whose palette says that it has fewer colours than its pixels use."""
    data = bytearray(encoded("BMP", Image.new("L", (8, 8), 200)))
    data[46:50] = data[50:54] = struct.pack("<I", colours)
    return bytes(data)


LOSSLESS = encoded("WEBP", lossless=True)
FRAME = b"VP8L", LOSSLESS[20 : 20 + struct.unpack("<I", LOSSLESS[16:20])[0]]
PART = chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, 12, 16, 0, 0, 1, 10, 0, 1))
ANIMATED = chunk(b"acTL", struct.pack(">II", 2, 0)) + PART
JPEG = encoded("JPEG", quality=95)
SCAN = JPEG.index(b"\xff\xda")

ODD: dict[str, bytes] = {
    "PNG with a profile of its colours": with_chunks(chunk(b"sRGB", b"\0")),
    "PNG with a gamma": with_chunks(chunk(b"gAMA", struct.pack(">I", 10_000))),
    "animated PNG": with_chunks(ANIMATED),
    "WebP of two frames": riff(extended(0), FRAME, FRAME),
    "WebP whose transparency is twice there": riff(extended(16), (b"ALPH", b"\0\1"), FRAME),
    "WebP of one part": LOSSLESS,
    "BMP in runs": in_runs(b"\x08\x50\0\0" * 8 + b"\0\1"),
    "BMP whose runs end early": in_runs(b"\x08\x50\0\0\0\1"),
    "BMP with short rows": in_runs(b"\0\0".join([b"\3\7"] * 8) + b"\0\1"),
    "BMP with a run beyond its row": in_runs(b"\x0f\x50\0\0" * 8 + b"\0\1"),
    "BMP with a short palette": changed_bmp(1),
    "JPEG upright": JPEG[:2] + segment_of(6) + JPEG[2:],
    "JPEG with two orientations": JPEG[:2] + segment_of(6) + segment_of(3) + JPEG[2:],
    "JPEG with an orientation that there is not": JPEG[:2] + segment_of(9) + segment_of(6) + JPEG[2:],
    "JPEG whose first EXIF is damaged": JPEG[:2] + b"\xff\xe1\0\x0aExif\0\0MM" + segment_of(6) + JPEG[2:],
    "JPEG with its orientation behind fill bytes": JPEG[:SCAN] + b"\xff" * 100_001 + segment_of(6) + JPEG[SCAN:],
    "JPEG with markers that are nothing": JPEG[:SCAN] + b"\xff\x01" * 100_001 + segment_of(8) + JPEG[SCAN:],
}


@needs_dali
@pytest.mark.parametrize(("channels", "upright"), [(3, False), (3, True), (1, False)])
@pytest.mark.parametrize("name", ODD)
def test_what_may_be_read_in_several_ways_is_one_image(name: str, channels: int, upright: bool) -> None:
    def whole(x: Any) -> Any:
        return ops.decode_image(x, channels=channels, exif_orientation=upright)

    assert_equal_on_executors(ODD[name], whole, int(channels == 1))


@pytest.mark.parametrize(
    ("name", "turned"),
    [
        ("JPEG upright", 6),
        ("JPEG with two orientations", 6),
        ("JPEG with an orientation that there is not", 1),
        ("JPEG whose first EXIF is damaged", 1),
        ("JPEG with its orientation behind fill bytes", 6),
        ("JPEG with markers that are nothing", 8),
    ],
)
def test_the_first_exif_block_says_how_an_image_is_turned(name: str, turned: int) -> None:
    data = ODD[name]
    plain = with_plain_orientation(data)

    assert read_header(data, orientation=True).orientation == turned
    assert read_header(plain or data, orientation=True).orientation == turned
    assert (plain or data).count(b"Exif\0\0") == 1
    assert (plain is None) == (name == "JPEG upright")
    assert with_plain_orientation(plain or data) is None
    assert with_plain_orientation(JPEG) is None


def test_segments_without_end_are_refused_where_scans_are_counted() -> None:
    data = JPEG[:SCAN] + b"\xff\xfe\0\2" * 100_001 + JPEG[SCAN:]

    with pytest.raises(DecodeError, match="no scan within its first 100000 segments"):
        check_scans(data, 1 << 30, 3, progressive=True)


def photograph(seed: int, kind: str = "JPEG", **how: Any) -> bytes:
    blocks = np.random.default_rng(seed).integers(0, 256, (4, 5, 3))
    return encoded(kind, Image.fromarray(np.kron(blocks, np.ones((4, 4, 1))).astype(np.uint8)), **how)


def without_tables(seed: int) -> bytes:
    """A JPEG that only its decoder finds bad."""
    return without(photograph(seed), 0xDB)


def damaged_tiff(seed: int) -> bytes:
    """A TIFF that only its decoder finds bad."""
    data = bytearray(photograph(seed, "TIFF", compression="tiff_lzw"))
    with Image.open(io.BytesIO(data)) as image:
        at = image.tag_v2[273][0]  # type: ignore[attr-defined]
    data[at : at + 20] = bytes(20)
    return bytes(data)


def small(x: Any, upright: bool = False) -> Any:
    return ops.resize(ops.decode_image(x, channels=3, exif_orientation=upright), (4, 4))


def seen(files: list[Any], function: Any, executor: str, batch: int, on_error: Any, drop: bool) -> list[Any]:
    """What a run over some files comes to: the sizes of its batches and its errors, in order."""
    ds = gp.Dataset.from_tensor_slices(
        files if isinstance(files[0], bytes) else tuple(map(list, zip(*files, strict=True)))
    )
    found: list[Any] = []
    made = ds.map(function).batch(batch, drop_remainder=drop)
    with made.with_options(on(executor, on_error=on_error)).iterator(0) as items:
        while True:
            try:
                images = next(items)
            except StopIteration:
                break
            except gp.DataError as error:
                found.append((error.offset, error.reason.partition(":")[0]))
            else:
                found.append(len(images[0] if isinstance(images, tuple) else images))
        records = sorted((record.offset or 0, record.reason.partition(":")[0]) for record in items.errors)
        return [found, records, items.left_out]


@needs_dali
@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("on_error", ["skip", "raise", "replace"])
@pytest.mark.parametrize("batch", [1, 3, 5])
def test_bad_images_of_all_kinds_come_in_one_order(batch: int, on_error: Any, drop: bool) -> None:
    files = [
        without_tables(0), damaged_tiff(1), photograph(2), ODD["BMP whose runs end early"], damaged_tiff(3),
        photograph(4, "TIFF"), photograph(5), without_tables(6), photograph(7, "PNG"), photograph(8), without_tables(9),
    ]  # fmt: skip
    numpy, dali = (seen(files, small, executor, batch, on_error, drop) for executor in ("numpy", "dali"))

    assert numpy == dali
    assert numpy[2] == (6 if on_error != "raise" and not drop else numpy[2])


@needs_dali
def test_the_first_bad_image_of_an_element_is_its_reason() -> None:
    files = [(without_tables(0), damaged_tiff(1)), (damaged_tiff(1), without_tables(0)), (photograph(2), photograph(3))]
    numpy, dali = (
        seen(files, lambda a, b: (small(a), small(b)), executor, 3, "skip", False) for executor in ("numpy", "dali")
    )

    assert numpy == dali
    assert [reason for _, reason in dali[1]] == ["damaged JPEG", "damaged TIFF"]


@needs_dali
def test_an_image_that_is_turned_in_one_place_only_is_judged_too() -> None:
    exif = Image.Exif()
    exif[274] = 6
    tiff = photograph(1, "TIFF", compression="tiff_lzw", exif=exif)
    files = [tiff, *(tiff[:k] + bytes([tiff[k] ^ 16]) + tiff[k + 1 :] for k in range(20, len(tiff), 9))]
    files += [
        photograph(2, "WEBP", lossless=True, exif=exif),
        photograph(3, exif=exif),
        photograph(4, "PNG", exif=exif),
    ]

    def both(x: Any) -> Any:
        return small(x), small(x, upright=True)

    found = []
    for executor in ("numpy", "dali"):
        made = gp.Dataset.from_tensor_slices(files).map(both).batch(8)
        with made.with_options(on(executor, on_error="skip")).iterator(0) as items:
            batches = list(items)
            images = [np.concatenate([np.asarray(batch[k]) for batch in batches]) for k in (0, 1)]
            found.append((images, sorted(record.offset or 0 for record in items.errors)))
    (numpy, bad), (dali, also_bad) = found

    assert bad == also_bad
    for a, b in zip(numpy, dali, strict=True):
        assert np.abs(a.astype(int) - b).max() <= 1  # of resizing
    as_stored, upright = dali
    assert not np.array_equal(as_stored, upright)


@needs_dali
def test_the_reason_of_a_bad_image_is_the_same_each_time() -> None:
    tiff = photograph(1, "TIFF")
    files = [tiff[:k] + bytes([tiff[k] ^ 255]) + tiff[k + 1 :] for k in range(8, 200, 7)] + [damaged_tiff(2)]
    numpy, dali = ([record.reason for record in errors_of(files, executor)] for executor in ("numpy", "dali"))

    assert numpy == dali
    assert not any(" at 0x" in reason for reason in numpy)


def errors_of(files: list[bytes], executor: str) -> Any:
    ds = gp.Dataset.from_tensor_slices(files).map(small).batch(4)
    items = ds.with_options(on(executor, on_error="skip")).iterator(0)
    list(items)
    return sorted(items.errors, key=lambda record: record.offset or 0)


@needs_dali
def test_damaged_cmyk_is_gray_on_every_executor() -> None:
    blocks = np.kron(np.random.default_rng(5).integers(0, 256, (6, 6, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    data = encoded("JPEG", Image.fromarray(blocks).convert("CMYK"), quality=90)
    at, rng = data.index(b"\xff\xda") + 16, np.random.default_rng(7)
    for _ in range(30):
        damaged = bytearray(data)
        for place in rng.integers(at, len(data) - 2, 3):
            damaged[place] ^= 1 << int(rng.integers(8))
        assert_equal_on_executors(bytes(damaged), lambda x: ops.decode_image(x, channels=1), 1)  # of rounding gray
