"""Image headers: Pillow made the images, and says how large they are; the class of an image, from its header."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest
from PIL import Image, features

from gpupipe.errors import DecodeError
from gpupipe.extract.images.decode import decode
from gpupipe.extract.images.describe import describe
from gpupipe.extract.images.headers import ImageHeader, check_complete, read_header
from gpupipe.extract.images.jpeg import jpeg_size
from gpupipe.ops._shared.samples import encoded, noise
from tests.chains.data import records, sample_folder

SIZES = [(1, 1), (17, 33), (500, 375)]


def saved(mode: str, size: tuple[int, int], kind: str = "JPEG", **options: Any) -> bytes:
    """An image of so many columns and rows."""
    if kind == "WEBP" and not features.check("webp"):
        pytest.skip("this Pillow writes no WebP")
    if mode == "I;16":
        return encoded(noise(size[1], size[0], 1, "uint16"), kind, **options)
    # An encoder may drop an alpha channel that is opaque: this one is not.
    return encoded(noise(size[1], size[0], 4 if mode == "RGBA" else 3), kind, mode, **options)


JPEGS: dict[str, tuple[str, dict[str, Any]]] = {
    "gray": ("L", {}),
    "4:4:4": ("RGB", {"subsampling": 0}),
    "4:2:0": ("RGB", {"subsampling": 2}),
    "progressive": ("RGB", {"progressive": True}),
    "CMYK": ("CMYK", {}),
    "EXIF": ("RGB", {"orientation": 6}),
    "profile": ("RGB", {"icc_profile": bytes(100_000)}),
    "comment": ("RGB", {"comment": b"\xff\xc0\xff\xd9" * 20}),
    "restart": ("RGB", {"restart_marker_blocks": 1}),
}


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", JPEGS)
def test_jpeg_headers_say_what_pillow_says(name: str, size: tuple[int, int]) -> None:
    mode, options = JPEGS[name]
    data = saved(mode, size, **options)

    header = read_header(data, orientation=True)

    channels = len(mode) if mode != "L" else 1
    assert header == ImageHeader(
        "jpeg", size[1], size[0], channels, 6 if name == "EXIF" else 1, progressive=name == "progressive", bits=8
    )
    check_complete(data, header)
    assert read_header(memoryview(data)).orientation == 1  # nobody asked
    assert jpeg_size(data)[:2] == (size[1], size[0])


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_orientation_is_read_where_it_is_asked_for(orientation: int, kind: str) -> None:
    data = saved("RGB", (30, 20), kind, orientation=orientation)

    header = read_header(data, orientation=True)

    assert (header.orientation, header.height, header.width) == (orientation, 20, 30)
    assert header.size == ((30, 20) if orientation > 4 else (20, 30))
    assert read_header(data).size == (20, 30)


CHANNELS = {"RGB": 3, "RGBA": 4, "L": 1, "LA": 2, "P": 3, "I;16": 1, "1": 1}
OTHERS: list[tuple[str, str, dict[str, Any]]] = [
    *(("PNG", mode, {}) for mode in CHANNELS),
    *((kind, "RGB", {}) for kind in ("BMP", "WEBP", "TIFF")),
    *((kind, "P", {}) for kind in ("GIF", "BMP")),
    ("WEBP", "RGB", {"lossless": True}),
    ("WEBP", "RGBA", {"lossless": True}),
    ("WEBP", "RGB", {"orientation": 3}),
    ("TIFF", "L", {}),
    ("TIFF", "RGB", {"compression": "tiff_lzw"}),
    ("TIFF", "RGB", {"big_endian": True}),
]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("kind", "mode", "options"), OTHERS)
def test_headers_of_other_formats_say_what_pillow_says(kind: str, mode: str, options: Any, size: Any) -> None:
    data = saved(mode, size, kind, **options)

    header = read_header(data)

    assert (header.format, header.height, header.width) == (kind.lower(), size[1], size[0])
    assert header.channels == CHANNELS[mode]
    assert header.bits == {"I;16": 16, "1": 1}.get(mode, 8)
    check_complete(data, header)


@pytest.mark.parametrize(
    "block", [b"", b"II*\0", b"MM\0*\xff\xff\xff\xff", b"II*\0\x08\0\0\0\xff\xff", b"nonsense" * 4]
)
def test_a_damaged_exif_block_asks_for_nothing(block: bytes) -> None:
    data = saved("RGB", (8, 8))
    segment = b"Exif\0\0" + block
    data = data[:2] + b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment + data[2:]

    assert read_header(data, orientation=True).orientation == 1


def test_a_file_of_fill_bytes_comes_to_an_end() -> None:
    for endless in (b"\xff" * 2_000_000, b"\xff\xe0\0\2" * 200_000):
        with pytest.raises(DecodeError, match="no size within"):
            read_header(b"\xff\xd8" + endless)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "got no bytes"),
        (b"<html>no image</html>", "not an image but the text '<html>no image</html>'"),
        (b"\xff\xd8", "truncated inside its header"),
        (b"\xff\xd8\x00\x00\x00\x00\x00", "a marker is expected at byte 2, found 00"),
        (b"\xff\xd8\xff\xda\x00\x08" + bytes(20), "marker ff da at byte 2 before the size is known"),
        (b"\xff\xd8\xff\xc0\x00\x11\x08\x00\x00\x00\x08\x03" + bytes(20), "its header says 8x0"),
        (b"\xff\xd8\xff\xc0\x00\x09\x08\x00\x08\x00\x08\x03" + bytes(20), "3 channels"),
        (b"RIFF\x10\0\0\0WAVEfmt " + bytes(20), "a WEBP that Pillow reads is needed"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\0\0\0\0\x01\x08\x02\0\0\0", "this PNG is 0x1"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\1\0\0\0\x01\x08\x07\0\0\0", "valid IHDR"),
        (b"BM" + bytes(12) + b"\x10\0\0\0" + bytes(20), "a BMP that Pillow reads|damaged BMP: Unsupported BMP header"),
    ],
)
def test_what_is_no_image_is_an_error(data: bytes, match: str) -> None:
    with pytest.raises(DecodeError, match=match):
        read_header(data)


@pytest.mark.parametrize("name", ["gray", "4:2:0", "progressive", "EXIF", "comment"])
def test_a_truncated_jpeg_is_noticed(name: str) -> None:
    mode, options = JPEGS[name]
    data = saved(mode, (200, 100), **options)
    header = read_header(data)

    for cut in (1, 2, 100, len(data) // 2):
        with pytest.raises(DecodeError, match=r"truncated JPEG: .* without the end marker"):
            check_complete(data[:-cut], header)


@pytest.mark.parametrize("tail", [b"\0", b"\r\n", bytes(70_000), b"\xff\xd8\xff\xe0 another image" * 10])
def test_bytes_behind_the_end_of_a_jpeg_are_allowed(tail: bytes) -> None:
    data = saved("RGB", (200, 100)) + tail

    check_complete(data, read_header(data))
    check_complete(memoryview(data), read_header(data))


def test_the_end_of_a_thumbnail_is_not_the_end_of_the_image() -> None:
    thumbnail = saved("RGB", (16, 16))
    data = saved("RGB", (20, 20))
    data = data[:2] + b"\xff\xe1" + struct.pack(">H", len(thumbnail) + 2) + thumbnail + data[2:]

    assert jpeg_size(data)[:2] == (20, 20)
    with pytest.raises(DecodeError, match="truncated"):
        check_complete(data[:-2], read_header(data))


def test_a_truncated_png_or_webp_is_noticed() -> None:
    data = saved("RGB", (50, 40), "PNG")
    header = read_header(data)

    check_complete(data + b"behind the end", header)
    for cut in (12, 13, len(data) // 2):
        with pytest.raises(DecodeError, match="truncated PNG"):
            check_complete(data[:-cut], header)
    if features.check("webp"):
        with pytest.raises(DecodeError, match="WEBP"):
            decode(saved("RGB", (50, 40), "WEBP")[:-2])


def test_equal_headers_are_one_object() -> None:
    data = saved("RGB", (50, 40))

    assert read_header(data) is read_header(data)


def test_headers_of_photographs_say_what_pillow_says() -> None:
    folder = sample_folder()
    if folder is None:
        pytest.skip("no sample of photographs at hand (GPUPIPE_SAMPLE)")
    for data, _ in records(sorted(folder.glob("*.tfrecord"))[:3]):
        header = read_header(data)
        check_complete(data, header)
        with Image.open(io.BytesIO(data)) as image:
            assert image.size == (header.width, header.height)
            assert len(image.getbands()) == header.channels


# ---- the class of an image


PIXELS = noise(40, 56)
JFIF = b"\xff\xe0\x00\x07JFIF\0"


def _frame(marker: int, factors: list[int], *before: bytes) -> bytes:
    head = bytes([8]) + (16).to_bytes(2, "big") * 2 + bytes([len(factors)])
    body = head + b"".join(bytes([n + 1, factor, 0]) for n, factor in enumerate(factors))
    return b"\xff\xd8" + b"".join(before) + bytes([0xFF, marker]) + (len(body) + 2).to_bytes(2, "big") + body


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (encoded(PIXELS, "JPEG", subsampling=0), "JPEG baseline 4:4:4"),
        (encoded(PIXELS, "JPEG", subsampling=1), "JPEG baseline 4:2:2"),
        (encoded(PIXELS, "JPEG", subsampling=2), "JPEG baseline 4:2:0"),
        (encoded(PIXELS, "JPEG", subsampling=2, progressive=True), "JPEG progressive 4:2:0"),
        (encoded(PIXELS, "JPEG", "L"), "JPEG baseline gray"),
        (encoded(PIXELS, "JPEG", "CMYK"), "JPEG baseline 4:4:4 CMYK"),
        (encoded(PIXELS, "JPEG", keep_rgb=True), "JPEG baseline 4:4:4 RGB"),
        (encoded(PIXELS, "PNG"), "PNG"),
        (encoded(PIXELS, "PNG", "RGBA"), "PNG RGBA"),
        (encoded(PIXELS, "PNG", "LA"), "PNG gray and alpha"),
        (encoded(PIXELS, "PNG", "I;16"), "PNG gray 16 bits"),
        (encoded(PIXELS, "WEBP"), "WebP"),
        (encoded(PIXELS, "BMP"), "BMP"),
        (encoded(PIXELS, "TIFF", "CMYK"), "TIFF 4 channels"),
        (_frame(0xC9, [0x11]), "JPEG arithmetic extended gray"),
        (_frame(0xCA, [0x11]), "JPEG arithmetic progressive gray"),
        (_frame(0xC3, [0x11]), "JPEG lossless gray"),
        (_frame(0xC0, [0x41, 0x11, 0x11]), "JPEG baseline 4:1:1"),
        (_frame(0xC0, [0x12, 0x11, 0x11]), "JPEG baseline 4:4:0"),
        (_frame(0xC0, [0x22, 0x21, 0x11]), "JPEG baseline 2x2 2x1 1x1"),
        (_frame(0xC0, [0x22, 0x00, 0x00]), "JPEG baseline 2x2 0x0 0x0"),
        (_frame(0xC0, [0x11] * 4, b"\xff\xee\x00\x0eAdobe" + bytes(6) + b"\x02"), "JPEG baseline 4:4:4 YCCK"),
        (_frame(0xC0, [0x11] * 3, b"\xff\xee\x00\x0eAdobe" + bytes(6) + b"\x00"), "JPEG baseline 4:4:4 RGB"),
        (_frame(0xC0, [0x11] * 3, JFIF, b"\xff\xee\x00\x0eAdobe" + bytes(7)), "JPEG baseline 4:4:4"),
        (_frame(0xC0, [0x11] * 2), "JPEG baseline 4:4:4 2 channels"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_image_is_named_by_format_process_subsampling_and_colour(data: bytes, kind: str) -> None:
    assert describe(data).kind == kind


def test_a_jpeg_says_its_size_orientation_and_restarts() -> None:
    plain = describe(encoded(PIXELS, "JPEG"))
    assert (plain.header.height, plain.header.width, plain.restart_interval) == (40, 56, 0)
    assert describe(encoded(PIXELS, "JPEG", restart_marker_blocks=3)).restart_interval == 3
    assert [describe(encoded(PIXELS, orientation=n)).header.orientation for n in range(1, 9)] == list(range(1, 9))


def test_no_prefix_of_an_image_gives_another_error() -> None:
    for data in (
        encoded(PIXELS, orientation=6),
        encoded(PIXELS, "PNG"),
        encoded(PIXELS, mode="CMYK", progressive=True),
    ):
        whole = describe(data)
        for end in range(0, len(data), 1 if len(data) < 4000 else 7):
            try:
                assert describe(data[:end]).header.format == whole.header.format
            except DecodeError:
                continue
