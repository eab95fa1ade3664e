"""The class of an image, from its header."""

from __future__ import annotations

import pytest

from gpupipe.errors import DecodeError
from gpupipe.extract.images.describe import describe
from gpupipe.ops._shared.samples import encoded, noise

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
