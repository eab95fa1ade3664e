"""Fuzz target: the headers of images. The first byte chooses how the bytes are handed over, and a low bound."""

from __future__ import annotations

from dataclasses import replace

from gpupipe.errors import DecodeError
from gpupipe.extract.images import headers, jpeg, png
from gpupipe.extract.images.decode import MOST_PIXELS, decode
from gpupipe.extract.images.headers import ImageHeader, check_complete, check_decodable, read_header
from gpupipe.extract.images.jpeg import first_marker_in_scan, is_unfinished, with_plain_orientation
from gpupipe.extract.images.png import has_all_rows, without_ancillary
from tests.fuzz.bounds import lowered

LOW = 8
LARGEST = {"jpeg": 0xFFFF, "png": 2**31 - 1, "gif": 0xFFFF, "webp": 2**24, "bmp": 2**31, "tiff": 2**32 - 1}


def one(data: bytes, thorough: bool = True) -> None:
    """Read a header and check what it says; if `thorough`, in every way. Nothing is ever decoded."""
    if not data:
        return
    if data[0] & LOW:
        few = {"MOST_SCANNED": 0, "_MOST_PASSED": 1, "_FEW_SCANS": 2, "_MOST_STEPS": 6}
        with lowered(headers, _MOST_SIDE=6, MOST_SCANNED=0), lowered(jpeg, **few), lowered(png, _MOST_CHUNKS=6):
            checked(data, thorough)
    else:
        checked(data, thorough)


def checked(data: bytes, thorough: bool) -> None:
    """Check one image."""
    kind = memoryview if data[0] & 1 else bytearray if data[0] & 2 else bytes
    image: bytes | bytearray | memoryview = kind(data[1:])
    turned = header(image, True)
    plain = header(image, False) if thorough else turned and replace(turned, orientation=1)
    if thorough and not data[0] & LOW and data[1:3] == b"\xff\xd8":
        found = jpeg_slowly(data[1:])
        assert found == (plain and (plain.height, plain.width, plain.channels, plain.progressive, plain.bits))
    if plain is None or turned is None:
        assert turned is None
        assert plain is None or plain.format == "png"  # whose EXIF block may stand behind its pixels: they are cut
        return
    largest = LARGEST[plain.format]
    assert 0 < plain.height <= largest and 0 < plain.width <= largest
    assert plain.channels > 0 and (plain.bits > 0 or plain.format == "jpeg")
    assert plain.orientation == 1 <= turned.orientation <= 8
    assert plain.format == turned.format
    assert turned.size in ((plain.height, plain.width), (plain.width, plain.height))
    assert turned.orientation > 4 or turned.size == plain.size
    if thorough:
        assert header(bytes(image) + b"\0 more", False) == plain  # it is all in the bytes that are there
    whole = True
    try:
        check_complete(image, plain)
    except DecodeError as error:
        reason = explained(error)
        assert "truncated" in reason or "scan" in reason or plain.format != "jpeg"
        whole = False
    try:
        check_decodable(plain.format, plain.bits)
    except DecodeError as error:
        assert plain.format == "gif" or plain.bits != 8, explained(error)
    if plain.format == "jpeg":
        unmistaken = with_plain_orientation(image)
        if unmistaken is not None:
            assert header(unmistaken, True) == turned or data[0] & LOW
            assert with_plain_orientation(unmistaken) is None or data[0] & LOW
        cut = first_marker_in_scan(image, plain.channels)
        if cut is not None:
            after = bytes(image[cut:]).lstrip(b"\xff")[:1]
            assert image[cut] == 0xFF and after and after not in b"\x00\xd0\xd1\xd2\xd3\xd4\xd5\xd6\xd7\xd9"
        assert jpeg.is_ordinary(image) <= (plain.channels in (1, 3))
        assert not (jpeg.is_ordinary(image) and plain.progressive and is_unfinished(image, plain.channels))
        shorter = jpeg.of_upper_rows(image, 1 + data[0] % 64)
        if shorter is not None:
            assert header(shorter[0], False) == replace(plain, height=shorter[1])
            assert data[0] % 64 < shorter[1] < plain.height
    if whole and plain.format == "png":
        assert png.is_ordinary(image, True, False) <= png.is_ordinary(image, False, False)
        assert png.is_ordinary(image, False, True) <= png.is_ordinary(image, False, False)
        bare = without_ancillary(image)
        check_complete(bare, plain)
        assert has_all_rows(bare) == has_all_rows(image)
    undecoded(image, whole)


def header(image: bytes | bytearray | memoryview, orientation: bool) -> ImageHeader | None:
    """The header, None if there is none."""
    try:
        return read_header(image, orientation=orientation)
    except DecodeError as error:
        explained(error)
        return None


def explained(error: DecodeError) -> str:
    """The reason of an error, of bounded length; the decoder that asks puts its name there."""
    assert not error.stage and len(str(error)) < 300
    return error.reason


def undecoded(image: bytes | bytearray | memoryview, whole: bool) -> None:
    """Whoever decodes checks the header first, and the number of pixels before memory is taken for them."""
    token = MOST_PIXELS.set(0)
    try:
        decode(image)
    except DecodeError as error:
        assert whole == ("max_pixels" in error.reason), error
    else:
        raise AssertionError("an image of more pixels than it may have is decoded")
    finally:
        MOST_PIXELS.reset(token)


def not_alone(marker: int) -> bool:
    """Whether a marker begins a segment."""
    return marker not in (0, 1, 0xFF) and not 0xD0 <= marker <= 0xD7


def jpeg_slowly(data: bytes) -> tuple[int, int, int, bool, int] | None:
    """(height, width, channels, progressive, bits) of a JPEG, None if its frame header is not found or empty."""
    at = 2
    while at + 4 <= len(data):
        if data[at] != 0xFF or not data[at + 1]:  # up to the next marker of a segment
            while at + 2 <= len(data) and not (data[at] == 0xFF and not_alone(data[at + 1])):
                at += 1
            continue
        marker = data[at + 1]
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        if marker == 0xFF:
            at += 1
        elif marker == 1 or 0xD0 <= marker <= 0xD7:
            at += 2
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            frame = data[at + 4 : at + 10]
            if len(frame) < 6:
                return None
            height, width = frame[1] << 8 | frame[2], frame[3] << 8 | frame[4]
            if not height or not width or not frame[5] or length < 8 + 3 * frame[5]:
                return None
            return height, width, frame[5], marker & 3 == 2, frame[0]
        elif marker in (0xD8, 0xD9, 0xDA) or length < 2:
            return None
        else:
            at += 2 + length
    return None
